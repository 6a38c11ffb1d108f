package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// secondDies has a consumer with one dead letter of its group behind it, and with x, which it rejects now. The dead
// letter queue is there.
func (w *world) secondDies() (reject func(), end func()) {
	w.t.Helper()
	w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries, g.Breaker = 5, core.BreakerOff })
	w.publish("first", "x", "last")
	con := w.consumer("g")
	w.ok(w.next(con, "first", 1).Reject("no"))
	w.eventually("one is a dead letter", time.Minute, func() bool { return w.letters("g") == 1 })
	sleep(3 * time.Second)
	d := w.next(con, "x", 1)
	w.ok(w.take(con, time.Minute).Ack())
	sleep(3 * time.Second)
	reject = func() {
		w.t.Helper()
		w.ok(d.Reject("bad"))
		w.ok(con.Flush(w.t.Context()))
	}
	end = func() {
		w.t.Helper()
		w.equal("dead letters", w.listed("g"), []string{"first", "x"})
		op, err := w.Client.Admin().MergeDeadLetters(w.t.Context(), queue, "g", 0)
		w.ok(err)
		w.ended(op.ID)
		w.all(w.collect(con, 2), []string{"first", "x"}, true)
		if d := w.take(con, time.Minute); d != nil {
			w.t.Errorf("%q came twice", d.Body)
		}
		w.close(con)
	}
	return reject, end
}

// TestDead_OneOverALostConnection loses the connection of an owner to its input hosts while a dead letter is appended:
// its answer is lost, or the append is on the wire for a while. No host dies but input hosts, and no share moves. The
// dead letter queue has the message once.
func TestDead_OneOverALostConnection(t *testing.T) {
	for _, how := range []string{"answer lost, reset", "answer lost, silence", "append held", "both held", "input hosts killed"} {
		for _, inputs := range []int{1, 2} {
			t.Run(fmt.Sprint(how, "/", inputs), func(t *testing.T) {
				underrace.One(t, inputs == 2) // of each way
				bubble(t, Options{Inputs: inputs}, func(w *world) {
					reject, end := w.secondDies()
					var there, back []path
					for i := range inputs {
						there = append(there, path{w.hosts[Output].addr, w.hosts[InputOf(i)].addr})
						back = append(back, path{w.hosts[InputOf(i)].addr, w.hosts[Output].addr})
					}
					var heal func()
					switch how {
					case "append held":
						heal = w.net.drop(there...)
					case "both held":
						heal = w.net.drop(append(there, back...)...)
					default:
						heal = w.net.drop(back...)
					}
					reject()
					sleep(time.Second)
					switch how {
					case "answer lost, reset":
						for i := range inputs {
							w.Cut(Output, InputOf(i))
						}
					case "input hosts killed":
						for i := range inputs {
							w.Crash(InputOf(i))
							w.Up(InputOf(i))
						}
					default:
						sleep(10 * time.Second)
					}
					heal()
					sleep(2 * time.Minute)
					end()
				})
			})
		}
	}
}

// TestDead_OneOverAnOwnerThatWasCutOff cuts an owner off while a dead letter of it is on the wire. The next owner finds
// nothing, for as long as the cut lasts; then what is on the wire reaches the input host, if that still listens.
func TestDead_OneOverAnOwnerThatWasCutOff(t *testing.T) {
	for _, cut := range []time.Duration{4, 6, 8, 10, 12, 20, 30, 44, 46, 60, 75, 100} {
		cut *= time.Second
		t.Run(cut.String(), func(t *testing.T) {
			underrace.One(t, cut == 12*time.Second)
			bubble(t, Options{Outputs: 2}, func(w *world) {
				reject, end := w.secondDies()
				owner := w.owner("g")
				a, in := w.hosts[owner].addr, w.hosts[Input].addr
				heal := w.net.drop(path{a, in}, path{in, a})
				reject()
				sleep(700 * time.Millisecond) // its intent is durable, its append is on the wire
				tr := &trial{Cluster: w.Cluster, t: t, plan: &schedule{gossip: time.Millisecond}}
				tr.mu.random = rand.New(rand.NewPCG(1, 1))
				n := &nemesis{trial: tr}
				healRest := n.separate([]core.HostID{owner})
				sleep(cut)
				heal()
				healRest()
				sleep(2 * time.Minute)
				end()
			})
		})
	}
}
