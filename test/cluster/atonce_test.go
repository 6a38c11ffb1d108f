package cluster

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// fates are what becomes of each message of handled, one delivery after another. The last one is an ack.
var fates = []func(*client.Delivery) error{
	reject, awhile, reject, relabel, again, reject, reject, awhile, relabel, reject, again, reject, awhile,
	func(d *client.Delivery) error { return d.Ack() },
}

func reject(d *client.Delivery) error { return d.Reject("no") }
func again(d *client.Delivery) error  { return d.Nack(client.After(100 * time.Millisecond)) }
func awhile(d *client.Delivery) error { return d.Nack(client.After(32 * time.Second)) }

func relabel(d *client.Delivery) error {
	return d.Nack(client.After(time.Second), client.Metadata([]byte("x")))
}

// handled counts how far messages are on their way through fates.
type handled struct {
	sync.Mutex
	at   map[string]int
	done int
	over int // deliveries after the ack
}

// handle gives a message its next fate.
func (x *handled) handle(d *client.Delivery) {
	x.Lock()
	defer x.Unlock()
	body := string(d.Body)
	at := x.at[body]
	if at == len(fates) {
		x.over++
		at--
	}
	if fates[at](d) != nil || x.at[body] > at {
		return
	}
	if x.at[body]++; x.at[body] == len(fates) {
		x.done++
	}
}

func (x *handled) isDone(n int) bool {
	x.Lock()
	defer x.Unlock()
	return x.done == n
}

// TestCluster_AllAtOnceOnOneGroup merges all dead letters of a group, selected ones by two callers, purges, cancels,
// seeks by two callers and changes the settings of the group, all at once, while its messages are rejected, wait in the
// retry queue and come back, and output hosts are stopped or killed: each message comes to its end, and without a crash
// no delivery of it comes twice.
func TestCluster_AllAtOnceOnOneGroup(t *testing.T) {
	for _, x := range []struct {
		name  string
		every time.Duration // at most, between two stops
		crash bool
		exact bool
	}{{name: "stops", every: 200 * time.Second, exact: true}, {name: "crashes", every: 10 * time.Second, crash: true}} {
		t.Run(x.name, func(t *testing.T) {
			underrace.One(t, x.crash)
			bubble(t, Options{Outputs: 3}, func(w *world) {
				const n = 40
				w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries = 8; patient(g) })
				h := &handled{at: make(map[string]int)}
				stop, over := make(chan struct{}), make(chan struct{})
				var consumers, chores sync.WaitGroup
				for range 2 {
					con := w.consumer("g", client.Prefetch(7))
					consumers.Go(func() {
						for !closed(over) {
							if d := w.take(con, time.Second); d != nil {
								h.handle(d)
							}
						}
						w.close(con)
					})
				}
				w.publish(numbers(1, n)...)
				w.eventually("all are rejected once", time.Minute, func() bool { return w.letters("g") == n })
				w.atOnce(&chores, stop)
				random := rand.New(rand.NewPCG(1, 1))
				chores.Go(func() {
					for w.idle(stop, random, x.every) {
						id := OutputOf(random.IntN(3))
						if !x.crash {
							w.Restart(id)
							continue
						}
						w.Crash(id)
						sleep(millis(random, 5*time.Second))
						w.Up(id)
					}
				})
				w.eventually("all come to their end", time.Hour, func() bool { return h.isDone(n) })
				close(stop)
				chores.Wait()
				w.eventually("nothing is left", 3*time.Minute, func() bool { return !x.exact || w.places("g") == "0 0 0 0 0" })
				sleep(2 * time.Minute)
				close(over)
				consumers.Wait()
				if x.exact && h.over > 0 {
					t.Errorf("%d deliveries came after the ack", h.over)
				}
			})
		})
	}
}

// idle waits up to d; false: it is over.
func (w *world) idle(stop chan struct{}, random *rand.Rand, d time.Duration) bool {
	select {
	case <-stop:
		return false
	case <-time.After(millis(random, d)):
		return true
	}
}

// atOnce does things to the group again and again, side by side. Calls that meet each other may be refused.
func (w *world) atOnce(chores *sync.WaitGroup, stop chan struct{}) {
	admin, ctx := w.Client.Admin(), w.t.Context()
	merge := func(random *rand.Rand) {
		_, _ = admin.MergeSelected(ctx, queue, "g", core.Selection{MinAttempts: random.IntN(2)}, 0)
	}
	seek := func(*rand.Rand) { _, _ = admin.Seek(ctx, queue, "g", core.Start{Mode: core.StartLatest}) }
	for i, x := range []struct {
		every time.Duration
		do    func(*rand.Rand)
	}{
		{3 * time.Second, merge}, {3 * time.Second, merge}, {5 * time.Second, seek}, {9 * time.Second, seek},
		{20 * time.Second, func(*rand.Rand) {
			_, _ = admin.PurgeSelected(ctx, queue, "g", core.Selection{Reasons: []string{"none has it"}})
		}},
		{3 * time.Second, func(random *rand.Rand) {
			_, _ = admin.UpdateGroup(ctx, core.GroupSpec{Queue: queue, Name: "g", MaxDeliveries: 6 + random.IntN(5)})
		}},
		{8 * time.Second, func(*rand.Rand) {
			all, _ := admin.ListOperations(ctx, false)
			for _, o := range all {
				_, _ = admin.CancelOperation(ctx, o.ID)
			}
		}},
	} {
		random := rand.New(rand.NewPCG(2, uint64(i)))
		chores.Go(func() {
			for w.idle(stop, random, x.every) {
				x.do(random)
			}
		})
	}
}
