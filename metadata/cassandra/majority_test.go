package cassandra

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

func TestMajority(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	few, other := errors.New("too few"), errors.New("canceled")
	type call struct {
		began, ended float64
		err          error
	}
	for name, test := range map[string]struct {
		calls []call // in the order of their ends
		at    float64
		want  bool
	}{
		"nothing was asked":                       {nil, 0, true},
		"a failure a moment ago":                  {[]call{{0, 2, few}}, 2.9, false},
		"a failure a second ago":                  {[]call{{0, 2, few}}, 3, true},
		"a failure of another kind":               {[]call{{0, 2, other}}, 2, true},
		"an answer after a failure":               {[]call{{0, 2, few}, {1, 2.1, nil}}, 2.2, true},
		"a failure that began before an answer":   {[]call{{1, 1.5, nil}, {0, 2, few}}, 2.1, true},
		"a failure that began after an answer":    {[]call{{1, 1.5, nil}, {1.5, 2, few}}, 2.1, false},
		"a failure that began with an answer":     {[]call{{1, 1, nil}, {1, 3, few}}, 3.1, false},
		"a call that was given up while lacking":  {[]call{{0, 2, few}, {0, 2.5, other}}, 3.4, false},
		"the next after it":                       {[]call{{0, 2, few}, {0, 2.5, other}}, 3.5, true},
		"another failure of those that had begun": {[]call{{0, 2, few}, {1, 3, few}}, 3.9, false},
	} {
		t.Run(name, func(t *testing.T) {
			var m majority
			for _, c := range test.calls {
				m.ended(at(c.began), at(c.ended), c.err, errors.Is(c.err, few))
			}
			if got := m.admit(at(test.at)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
	var m majority
	m.ended(at(0), at(2), few, true)
	for _, step := range []struct {
		at   float64
		want bool
	}{{3, true}, {3, false}, {7.9, false}, {8, true}, {8.1, false}} { // the probe does not end
		if got := m.admit(at(step.at)); got != step.want {
			t.Errorf("at %v: admitted %v, want %v", step.at, got, step.want)
		}
	}
	m.ended(at(3), at(9), few, true)
	if m.admit(at(9.5)) || !m.admit(at(10)) {
		t.Error("after a probe that failed a second passes")
	}
	m.ended(at(10), at(10.1), nil, false)
	for range 2 {
		if !m.admit(at(10.1)) {
			t.Error("after an answer all calls are sent")
		}
	}
}

func TestTooFew(t *testing.T) {
	const quorum = gocql.Quorum
	for name, test := range map[string]struct {
		err         error
		plain, swap bool
	}{
		"too few are up":                    {&gocql.RequestErrUnavailable{Consistency: quorum, Required: 2, Alive: 1}, true, true},
		"too few are up for Paxos":          {&gocql.RequestErrUnavailable{Consistency: gocql.Consistency(gocql.Serial), Required: 2, Alive: 1}, true, true},
		"too few answered a read":           {&gocql.RequestErrReadTimeout{Consistency: quorum, Received: 1, BlockFor: 2}, true, false},
		"enough answered, but no data came": {&gocql.RequestErrReadTimeout{Consistency: quorum, Received: 2, BlockFor: 2}, false, false},
		"a Paxos read in contention":        {&gocql.RequestErrReadTimeout{Consistency: gocql.Consistency(gocql.Serial), BlockFor: 2}, false, false},
		"too few answered a write":          {&gocql.RequestErrWriteTimeout{Consistency: quorum, Received: 1, BlockFor: 2, WriteType: "SIMPLE"}, true, false},
		"a transaction in contention":       {&gocql.RequestErrWriteTimeout{Consistency: quorum, BlockFor: 2, WriteType: "CAS"}, true, false},
		"no node answered":                  {gocql.ErrTimeoutNoResponse, true, false},
		"no node is reached":                {gocql.ErrNoConnections, false, false},
		"a wrong statement":                 {answer(gocql.ErrCodeInvalid), false, false},
		"the caller gave up":                {context.DeadlineExceeded, false, false},
		"success":                           {nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tooFew(test.err, false); got != test.plain {
				t.Errorf("plain call: got %v, want %v", got, test.plain)
			}
			if got := tooFew(test.err, true); got != test.swap {
				t.Errorf("transaction: got %v, want %v", got, test.swap)
			}
		})
	}
}

// On a minority side one call in a while waits for the timeouts, calls at One go on, and a call that was not sent is
// never unknown. When a majority is back all calls are sent within a second or so.
func TestStore_LacksMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		minority, sent := true, 0
		timedOut := &gocql.RequestErrReadTimeout{Consistency: gocql.Quorum, Received: 1, BlockFor: 2}
		ask := func() error {
			sent++
			if minority {
				<-time.After(5 * time.Second)
				return timedOut
			}
			return nil
		}
		inner := &script{onRead: ask}
		inner.onWrite = func([]statement) (bool, error) {
			err := ask()
			return err != nil, err
		}
		inner.onSwap = func() (bool, state, error) {
			err := ask()
			return err == nil, state{}, err
		}
		everywhere := true
		s := scripted(inner)
		s.session = &guarded{session: inner, everywhere: func() bool { return everywhere }}
		defer s.Close()
		key := metadata.Key{Partition: "id", Row: "a"}
		get := func(c metadata.Consistency) error {
			_, err := s.Get(t.Context(), metadata.Seals, key, c)
			return err
		}
		calls := map[string]func() error{
			"get at Quorum": func() error { return get(metadata.Quorum) },
			"get at Serial": func() error { return get(metadata.Serial) },
			"list": func() error {
				_, _, err := s.List(t.Context(), metadata.Names, "p", "", 1, metadata.Quorum)
				return err
			},
			"insert": func() error { return s.Insert(t.Context(), metadata.Seals, key, nil) },
			"page": func() error {
				_, _, err := s.Page(t.Context(), nil)
				return err
			},
			"update": func() error { return s.Update(t.Context(), metadata.Seals, key, 5, nil, 0) },
			"delete": func() error { return s.Delete(t.Context(), metadata.Seals, key, 5) },
			"put": func() error {
				return s.Put(t.Context(), metadata.Work, key, nil, time.Unix(1, 0), 0, metadata.Quorum)
			},
		}
		began := time.Now()
		if err := get(metadata.Quorum); core.CodeOf(err) != core.CodeUnavailable || time.Since(began) != 5*time.Second {
			t.Errorf("%v after %s; want the first call to wait", err, time.Since(began))
		}
		sent, began = 0, time.Now()
		for what, call := range calls {
			if err := call(); core.CodeOf(err) != core.CodeUnavailable {
				t.Errorf("%s: %v, want code %q", what, err, core.CodeUnavailable)
			}
		}
		if sent != 0 || time.Since(began) != 0 {
			t.Errorf("%d calls were sent, and took %s", sent, time.Since(began))
		}
		if get(metadata.One); sent != 1 {
			t.Error("a call at One is not sent")
		}
		everywhere = false
		if get(metadata.Quorum); sent != 2 {
			t.Error("a call is not sent though nodes have different rows")
		}
		everywhere, minority = true, false
		<-time.After(refuseFor)
		if err := calls["update"](); err != nil {
			t.Errorf("the first call after the pause: %v", err)
		}
		if err := calls["put"](); err != nil {
			t.Errorf("the second call after the pause: %v", err)
		}
	})
}

// A caller whose time is over before Cassandra's timeout says the same as the timeout, if it waited for long and
// nothing came. A transaction does not: it may be one of many for its row.
func TestGuarded_CallersGiveUp(t *testing.T) {
	type call func(context.Context, *guarded) error
	none := func(gocql.Scanner) (bool, error) { return true, nil }
	var (
		read  = func(ctx context.Context, g *guarded) error { return g.read(ctx, gocql.Quorum, 1, statement{}, none) }
		write = func(ctx context.Context, g *guarded) error {
			_, err := g.write(ctx, gocql.Quorum, nil)
			return err
		}
		page = func(ctx context.Context, g *guarded) error {
			_, err := g.page(ctx, gocql.Quorum, 1, nil, statement{}, func(gocql.Scanner) error { return nil })
			return err
		}
		swap = func(ctx context.Context, g *guarded) error {
			_, _, err := g.swap(ctx, statement{})
			return err
		}
	)
	for name, test := range map[string]struct {
		call  call
		after time.Duration
		rows  int
		want  bool // the next call is sent
	}{
		"a read":                     {read, time.Second, 0, false},
		"a write":                    {write, time.Second, 0, false},
		"a read, soon":               {read, 100 * time.Millisecond, 0, true},
		"a read that has begun well": {read, time.Second, 3, true},
		"a page":                     {page, time.Second, 0, false},
		"a page that has begun well": {page, time.Second, 3, true},
		"a transaction":              {swap, time.Second, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &guarded{session: silent{test.rows}, everywhere: func() bool { return true }}
				for i, want := range []error{context.DeadlineExceeded, map[bool]error{true: context.DeadlineExceeded, false: errTooFew}[test.want]} {
					ctx, cancel := context.WithTimeout(t.Context(), test.after)
					if err := test.call(ctx, g); !errors.Is(err, want) {
						t.Errorf("call %d: %v, want %v", i, err, want)
					}
					cancel()
				}
			})
		})
	}
}

// silent is a session that answers some rows, and then nothing until the caller gives up.
type silent struct{ rows int }

func (silent) write(ctx context.Context, _ gocql.Consistency, _ []statement) (bool, error) {
	<-ctx.Done()
	return true, ctx.Err()
}

func (silent) swap(ctx context.Context, _ statement) (bool, state, error) {
	<-ctx.Done()
	return false, state{}, ctx.Err()
}

func (s silent) read(ctx context.Context, _ gocql.Consistency, _ int, _ statement, each func(gocql.Scanner) (bool, error)) error {
	for range s.rows {
		if _, err := each(nil); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s silent) page(ctx context.Context, c gocql.Consistency, size int, _ []byte, st statement, each func(gocql.Scanner) error) ([]byte, error) {
	return nil, s.read(ctx, c, size, st, func(rows gocql.Scanner) (bool, error) { return true, each(rows) })
}

func (silent) close() {}

// Each node has each row as long as there are no more nodes than replicas; a node that is down counts.
func TestCounting(t *testing.T) {
	var m members
	p := counting{newLocalFirst(""), &m}
	hosts := make([]*gocql.HostInfo, 3)
	for i, ip := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		hosts[i] = (&gocql.HostInfo{}).SetConnectAddress(net.ParseIP(ip))
		hosts[i].SetHostID(ip)
		p.AddHost(hosts[i])
		p.AddHost(hosts[i])
	}
	p.HostDown(hosts[0])
	if n := m.count(); n != 3 {
		t.Errorf("%d members, want 3", n)
	}
	p.RemoveHost(hosts[0])
	if n := m.count(); n != 2 {
		t.Errorf("%d members after one was removed, want 2", n)
	}
	for want, options := range map[int]map[string]string{
		3: {"class": "NetworkTopologyStrategy", "dc1": "3"},
		5: {"class": "NetworkTopologyStrategy", "dc1": "3", "dc2": "2"},
		1: {"class": "SimpleStrategy", "replication_factor": "1"},
		0: {"class": "NetworkTopologyStrategy", "dc1": "3/1"},
	} {
		if got := sumReplicas(options); got != want {
			t.Errorf("%v: %d replicas, want %d", options, got, want)
		}
	}
}

// On a real node: a keyspace that wants three replicas of a cluster of one node has no majority.
func TestStore_TooFewReplicas(t *testing.T) {
	if len(nodes.Start(t)) > 1 {
		t.Skip("there are as many nodes as the keyspace wants replicas")
	}
	cfg := config(t)
	cfg.Keyspace = fmt.Sprintf("few_%d", time.Now().UnixNano())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := Apply(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	s, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key := metadata.Key{Partition: "id", Row: "a"}
	if err := s.Insert(ctx, metadata.Seals, key, []byte("x")); err != nil {
		t.Fatal(err)
	}
	replicate := func(n int) {
		t.Helper()
		text := fmt.Sprintf("ALTER KEYSPACE %s WITH replication = {'class': 'SimpleStrategy', 'replication_factor': %d}", cfg.Keyspace, n)
		if err := s.session.(*guarded).session.(driver).session.Query(text).WithContext(ctx).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	defer replicate(1)
	replicate(3)
	get := func(c metadata.Consistency) error {
		_, err := s.Get(ctx, metadata.Seals, key, c)
		return err
	}
	// A Paxos read has a majority here: it counts the replicas that exist.
	if err := get(metadata.Quorum); core.CodeOf(err) != core.CodeUnavailable || errors.Is(err, errTooFew) {
		t.Errorf("the first call: %v, want the answer of the node", err)
	}
	began := time.Now()
	for what, err := range map[string]error{
		"get":    get(metadata.Serial),
		"update": s.Update(ctx, metadata.Seals, key, 5, nil, 0),
		"put":    s.Put(ctx, metadata.Work, key, nil, time.Unix(1, 0), 0, metadata.Quorum),
	} {
		if core.CodeOf(err) != core.CodeUnavailable || !errors.Is(err, errTooFew) && time.Since(began) < refuseFor {
			t.Errorf("%s: %v, want it not to be sent", what, err)
		}
	}
	if err := get(metadata.One); err != nil {
		t.Errorf("get at One: %v", err)
	}
	replicate(1)
	var pace pacer
	for err := get(metadata.Quorum); err != nil; err = get(metadata.Quorum) {
		if core.CodeOf(err) != core.CodeUnavailable || pace.wait(ctx) != nil {
			t.Fatalf("with a majority again: %v", err)
		}
	}
}
