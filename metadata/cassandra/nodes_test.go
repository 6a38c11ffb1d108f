package cassandra

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/lease"
	"github.com/columbamq/columba/metadata/metadatatest"
	realnode "github.com/columbamq/columba/test/cassandra"
)

// pauseTime is how long nodes stand still: longer than any request to one node.
const pauseTime = 8 * time.Second

// callsEach is how many calls of each client are to be answered before, during and after each fault.
const callsEach = 10

// onThree opens a store for each of three nodes, which is its local one; they share their rows, and have the timeouts
// of production.
func onThree(t *testing.T) (all []*realnode.Node, stores []metadata.Store) {
	t.Helper()
	all = nodes.Three(t)
	cfg, prefix := config(t), newPrefix()
	cfg.Request, cfg.Connect = 0, 0
	for _, node := range all {
		cfg.Local = node.Address()
		s := openPrefix(t, cfg, prefix)
		t.Cleanup(func() {
			began := time.Now()
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("close took %s", took)
			}
		})
		stores = append(stores, s)
		whole(t, s)
	}
	return all, stores
}

// whole waits until the local node of a store sees all others: one that was started again lately may not.
func whole(t *testing.T, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cfg := s.cfg
	cfg.Request = 10 * time.Second
	session, err := cfg.connect(cfg.Request)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	var pace pacer
	for {
		err := session.Query("SELECT step FROM " + cfg.Keyspace + ".schema_step WHERE owner = 'columba'").WithContext(ctx).
			Consistency(gocql.All).RetryPolicy(nil).Exec()
		if err == nil {
			return
		}
		if pace.wait(ctx) != nil {
			t.Fatalf("%s does not reach all nodes: %v", cfg.Local, err)
		}
	}
}

// While nodes are killed, paused and stopped one after the other, calls are answered by the two others, also those of a
// process whose local node is away. Compare-and-set is linearizable, also when the outcome of a call gets lost. Writes
// that were answered are there. No two processes hold a lease at the same time.
func TestStore_NodesComeAndGo(t *testing.T) {
	all, stores := onThree(t)
	load := metadatatest.Start(t, stores)
	defer load.Stop()
	duty := contend(t, stores)
	var kills, pauses []func()
	for _, node := range all {
		kills = append(kills, func() {
			node.Kill(t)
			load.Await(t, callsEach)
			node.Revive(t)
		})
		pauses = append(pauses, func() {
			node.Pause(t)
			over := time.After(pauseTime)
			load.Await(t, callsEach)
			<-over
			node.Resume()
		})
	}
	restart := func() {
		all[2].Stop(t)
		load.Await(t, callsEach)
		all[2].Revive(t)
	}
	for i, fault := range slices.Concat(kills, pauses[:2], []func(){restart}) {
		load.Await(t, callsEach)
		began := load.Now()
		fault()
		t.Logf("fault %d, from %s to %s", i, began, load.Now())
		load.Await(t, callsEach)
		load.Next(t)
	}
	duty.end(t)
	load.End(t)
}

// A process goes on when its local node stands still, also in calls whose deadline is below the time of one request.
func TestStore_LocalNodeStandsStill(t *testing.T) {
	all, stores := onThree(t)
	for i, limit := range []time.Duration{metadata.DefaultDeadline, 2 * time.Second} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			s, k := stores[i], metadata.LeaseKey(fmt.Sprint(limit))
			if err := s.Insert(t.Context(), metadata.Leases, k, nil); err != nil {
				t.Fatal(err)
			}
			row, err := s.Get(t.Context(), metadata.Leases, k, metadata.Serial)
			if err != nil {
				t.Fatal(err)
			}
			all[i].Pause(t)
			for n := range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				began := time.Now()
				err := s.Update(ctx, metadata.Leases, k, row.Version, nil, 0)
				cancel()
				t.Logf("update %d: %v after %s", n, err, time.Since(began).Round(time.Millisecond))
				switch core.CodeOf(err) {
				case "":
					row.Version++
				case core.CodeUnknown: // the first call of a short deadline learns that the node is silent
					if n > 0 || limit == metadata.DefaultDeadline {
						t.Errorf("update %d: %v", n, err)
					}
					if row, err = s.Get(t.Context(), metadata.Leases, k, metadata.Serial); err != nil {
						t.Fatal(err)
					}
				default:
					t.Fatalf("update %d: %v", n, err)
				}
			}
		})
	}
}

// Open waits while the nodes that answer are too few to read the version of the schema.
func TestOpen_TooFewNodes(t *testing.T) {
	all := nodes.Three(t)
	cfg := config(t)
	cfg.Local, cfg.Request, cfg.Connect = all[0].Address(), 0, 0
	all[1].Kill(t)
	all[2].Kill(t)
	tried := make(chan struct{})
	var once sync.Once
	cfg.Log = slog.New(slog.NewTextHandler(writerFunc(func([]byte) { once.Do(func() { close(tried) }) }), &slog.HandlerOptions{Level: slog.LevelWarn}))
	opened := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		s, err := Open(ctx, cfg)
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	select {
	case <-tried:
		nodes.ReviveAll(t)
	case err := <-opened:
		t.Fatalf("open ended with %v while two of three nodes were away", err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// duty is a lease that processes want, each with its own store.
type duty struct {
	contenders []*lease.Lease
	runs       []core.RunID
	stop       context.CancelFunc
	ended      chan error
	watch      sync.WaitGroup
}

// contend lets each store ask for the same lease, and checks all the time that at most one holds it.
func contend(t *testing.T, stores []metadata.Store) *duty {
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	d := &duty{stop: stop, ended: make(chan error, len(stores))}
	for i, s := range stores {
		run := core.RunID{ID: core.NewID(time.Now())}
		l := lease.New(s, "duty", core.HostID(fmt.Sprint("host", i)), run, nil)
		d.contenders, d.runs = append(d.contenders, l), append(d.runs, run)
		go func() { d.ended <- l.Run(ctx) }()
	}
	d.watch.Go(func() { d.look(ctx, t) })
	return d
}

func (d *duty) look(ctx context.Context, t *testing.T) {
	terms := map[uint64]int{} // who had them
	holding, free, longest := false, time.Now(), time.Duration(0)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Logf("lease: %d terms, longest time without a holder %s", len(terms), longest.Round(time.Millisecond))
			return
		}
		now, holders := time.Now(), 0
		for i, l := range d.contenders {
			term, held := l.Held(now)
			if !held {
				continue
			}
			holders++
			if who, known := terms[term]; known && who != i {
				t.Errorf("term %d is of contenders %d and %d", term, who, i)
			}
			terms[term] = i
		}
		if holders > 1 {
			t.Errorf("%d contenders hold the lease", holders)
		}
		if holding && holders == 0 {
			free = now
		}
		if holding = holders > 0; !holding {
			longest = max(longest, now.Sub(free))
		}
	}
}

// end ends the contenders. Each gives up the lease if it has it; if it cannot, the others would wait for it.
func (d *duty) end(t *testing.T) {
	t.Helper()
	d.stop()
	d.watch.Wait()
	for range d.contenders {
		if err := <-d.ended; err != nil {
			t.Logf("release the lease: %v", err)
		}
	}
}
