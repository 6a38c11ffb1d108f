package cassandra

import (
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
)

// ring is a policy with the nodes a, b, c, of which the driver knows nothing bad; a is the local one.
type ring struct{ localFirst }

func newRing(local string) ring { return ring{newLocalFirst(local)} }

var names = map[string]string{"127.0.0.1": "a", "127.0.0.2": "b", "127.0.0.3": "c"}

// picked is a node of the ring as the driver's own policy picks it.
type picked struct{ *gocql.HostInfo }

func (p picked) Info() *gocql.HostInfo { return p.HostInfo }
func (p picked) Mark(error)            {}

// pick returns the nodes in the order in which a request is sent to them.
func (r ring) pick(ctx context.Context) (order []gocql.SelectedHost) {
	all := []string{"127.0.0.2", "127.0.0.1", "127.0.0.3"}
	next := r.order(ctx, func() gocql.SelectedHost {
		if len(all) == 0 {
			return nil
		}
		h := (&gocql.HostInfo{}).SetConnectAddress(net.ParseIP(all[0]))
		h.SetHostID(names[all[0]])
		all = all[1:]
		return picked{h}
	})
	for h := next(); h != nil; h = next() {
		order = append(order, h)
	}
	return order
}

func (r ring) want(t *testing.T, when string, want ...string) []gocql.SelectedHost {
	t.Helper()
	order := r.pick(t.Context())
	var got []string
	for _, h := range order {
		got = append(got, h.Info().HostID())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: nodes are asked in the order %v, want %v", when, got, want)
	}
	return order
}

// A node that does not answer is asked last for a while; then one request tries it. It is as before when it answers.
func TestLocalFirst_SilentNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing("127.0.0.1:0")
		first := r.want(t, "at first", "a", "b", "c")
		first[0].Mark(gocql.ErrTimeoutNoResponse)
		r.want(t, "when it was silent", "b", "c", "a")
		r.want(t, "afterwards", "b", "c", "a")[1].Mark(gocql.ErrTimeoutNoResponse)
		r.want(t, "when two were silent", "b", "a", "c")
		<-time.After(silentTime)
		one := r.want(t, "when the time is over", "a", "b", "c")
		r.want(t, "while one request tries them", "b", "a", "c")
		one[0].Mark(nil)
		r.want(t, "when one answers", "a", "b", "c")
	})
}

// Without a local node a silent one comes last, too.
func TestLocalFirst_NoLocalNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing("")
		r.want(t, "at first", "b", "a", "c")[0].Mark(gocql.ErrTimeoutNoResponse)
		r.want(t, "when it was silent", "a", "c", "b")
	})
}

// Which ends of a request say that a node is silent.
func TestAsked_Mark(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		limit  time.Duration // of the request; 0 = none
		takes  time.Duration
		silent bool
	}{
		"an answer":                      {nil, 0, time.Second, false},
		"no answer":                      {gocql.ErrTimeoutNoResponse, 0, 3 * time.Second, true},
		"an error of the node":           {answer(gocql.ErrCodeWriteTimeout), 0, 3 * time.Second, false},
		"a lost connection":              {gocql.ErrConnectionClosed, 0, time.Second, false},
		"the end of a request of 2 s":    {nil, 2 * time.Second, 2001 * time.Millisecond, true},
		"the end of a request of 100 ms": {nil, 100 * time.Millisecond, 101 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.limit > 0 {
					ctx, cancel = context.WithTimeout(ctx, test.limit)
					defer cancel()
				}
				r := newRing("127.0.0.1:0")
				h := r.pick(ctx)[0]
				<-time.After(test.takes)
				h.Mark(test.err)
				if got := r.silent.avoid("a"); got != test.silent {
					t.Errorf("silent %v, want %v", got, test.silent)
				}
			})
		})
	}
}
