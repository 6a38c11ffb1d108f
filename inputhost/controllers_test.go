package inputhost

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	gopath "path"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/duty"
	"github.com/columbamq/columba/core/quota"
)

// door is where a controller takes its calls. Safe for concurrent use.
type door struct {
	http.Handler
	id core.HostID
	mu struct {
		sync.Mutex
		shut  chan struct{} // closed when it opens; nil: it is open
		moved bool          // another controller is responsible for everything
		calls map[string]int
	}
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // else the server does not see that the caller is gone
	r.Body = io.NopCloser(bytes.NewReader(body))
	d.mu.Lock()
	shut, moved := d.mu.shut, d.mu.moved
	if d.mu.calls == nil {
		d.mu.calls = make(map[string]int)
	}
	d.mu.calls[gopath.Base(r.URL.Path)]++
	d.mu.Unlock()
	if shut != nil {
		select {
		case <-shut:
		case <-r.Context().Done():
			return
		}
	}
	if moved {
		_ = connect.NewErrorWriter().Write(w, r, convert.RPCError(core.ErrMoved))
		return
	}
	d.Handler.ServeHTTP(w, r)
}

// hang keeps all calls until release.
func (d *door) hang() (release func()) {
	shut := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.shut = shut
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.mu.shut = nil
		close(shut)
	}
}

// refer has the door say that another controller is responsible, or not.
func (d *door) refer(moved bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.moved = moved
}

// called is how often a method was called at each door since the last time.
func (r *harness) called(method string) (n []int) {
	for _, d := range r.doors {
		d.mu.Lock()
		n = append(n, d.mu.calls[method])
		delete(d.mu.calls, method)
		d.mu.Unlock()
	}
	return n
}

// several runs f with three controllers.
func several(t *testing.T, f func(r *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &harness{t: t, more: 2}
		r.start(3, func(c *Config) { c.MinOpenExtents = 1 })
		defer r.stop()
		f(r)
	})
}

// ofFirst makes n queues for which the controllers rank in the order of their doors.
func (r *harness) ofFirst(n int) (paths []string) {
	for i := 0; len(paths) < n; i++ {
		p := fmt.Sprintf("/t/made%d", i)
		if id := r.queue(p); slices.Equal(core.Rank(id.String(), r.doors, func(d *door) core.HostID { return d.id }), r.doors) {
			paths = append(paths, p)
		}
	}
	return paths
}

// opens publishes the first message of a queue, and returns how long that took.
func (r *harness) opens(path string) time.Duration {
	r.t.Helper()
	began := time.Now()
	if err := r.publisher("p", path).try(time.Minute); err != nil {
		r.t.Errorf("%s: %v", path, err)
	}
	return time.Since(began)
}

const soon = 100 * time.Millisecond

// TestControllers_SilentOnesAreNotWaitedFor: the first two controllers of several queues hang.
func TestControllers_SilentOnesAreNotWaitedFor(t *testing.T) {
	several(t, func(r *harness) {
		paths := r.ofFirst(4)
		first, second := r.doors[0].hang(), r.doors[1].hang()
		if took := r.opens(paths[0]); took < 2*duty.Silence || took > 2*duty.Silence+soon {
			t.Errorf("with two controllers that hang the first message took %s, want twice %s", took, duty.Silence)
		}
		sleep(10 * time.Second)
		if took := r.opens(paths[1]); took > soon {
			t.Errorf("while they are known to be silent the first message of another queue took %s", took)
		}
		first()
		second()
		sleep(duty.TryEvery)
		if took := r.opens(paths[2]); took > soon { // both are asked beside the third, and heard
			t.Errorf("when they were back a message took %s", took)
		}
		sleep(time.Second)
		r.called("EnsureExtent")
		r.opens(paths[3])
		if n := r.called("EnsureExtent"); !slices.Equal(n, []int{1, 0, 0}) {
			t.Errorf("when they had answered, controllers were asked %v times, want only the first", n)
		}
	})
}

// TestControllers_LateAnswer: a controller that answers after the next one was asked is not silent, and its extent is
// not used.
func TestControllers_LateAnswer(t *testing.T) {
	several(t, func(r *harness) {
		paths := r.ofFirst(2)
		release := r.doors[0].hang()
		if took := r.opens(paths[0]); took < duty.Silence || took > duty.Silence+soon {
			t.Errorf("with a controller that hangs the first message took %s, want %s", took, duty.Silence)
		}
		sleep(time.Second)
		release()
		synctest.Wait()
		if n := r.called("EnsureExtent"); !slices.Equal(n, []int{1, 1, 0}) {
			t.Errorf("controllers were asked %v times", n)
		}
		if open := r.open(paths[0]); len(open) != 1 {
			t.Errorf("%d extents are open, want one", len(open))
		}
		r.opens(paths[1])
		if n := r.called("EnsureExtent"); !slices.Equal(n, []int{1, 0, 0}) {
			t.Errorf("after the late answer controllers were asked %v times, want only the first", n)
		}
	})
}

// TestControllers_SealGoesOn: the controller hangs while an extent ends with records that are owed.
func TestControllers_SealGoesOn(t *testing.T) {
	several(t, func(r *harness) {
		p := r.publisher("p", r.ofFirst(1)[0])
		p.send()
		p.flush()
		defer r.doors[0].hang()()
		for _, s := range r.stores {
			s.set(func() { s.delay = 50 * time.Millisecond })
		}
		p.send()
		sleep(10 * time.Millisecond)
		r.failAll()
		began := time.Now()
		p.flush()
		if took := time.Since(began); took > duty.Silence+soon {
			t.Errorf("the records of an extent that failed were answered after %s, want %s", took, duty.Silence)
		}
		r.all(2)
		if n := r.called("SealExtent"); !slices.Equal(n, []int{1, 1, 0}) {
			t.Errorf("controllers were asked for the end %v times", n)
		}
	})
}

// TestControllers_OneDividesQuotas: all hosts ask the same controller for shares of limits, and the next one only when
// it is silent, or says that it is not responsible.
func TestControllers_OneDividesQuotas(t *testing.T) {
	several(t, func(r *harness) {
		key := quota.Key("/t")
		ranked := core.Rank(key.String(), r.doors, func(d *door) core.HostID { return d.id })
		lease := func(want core.Code, asked ...*door) {
			t.Helper()
			ctx, cancel := context.WithTimeout(r.t.Context(), 2*duty.Silence)
			defer cancel()
			if _, err := r.host.leaseQuota(ctx, key, &pb.LeaseQuotaRequest{}); core.CodeOf(err) != want {
				t.Errorf("%v; want %s", err, want)
			}
			n := r.called("LeaseQuota")
			for i, d := range r.doors {
				if was := n[i] > 0; was != slices.Contains(asked, d) {
					t.Errorf("controllers were asked for quotas %v times, number %d should be asked: %v", n, i, !was)
				}
			}
		}
		lease(core.CodeUnimplemented, ranked[0]) // which is an answer
		ranked[0].refer(true)
		lease(core.CodeUnimplemented, ranked[:2]...)
		ranked[1].refer(true)
		ranked[2].refer(true)
		lease(core.CodeMoved, ranked...)
		for _, d := range ranked {
			d.refer(false)
		}
		defer ranked[0].hang()()
		began := time.Now()
		lease(core.CodeUnimplemented, ranked[:2]...)
		if took := time.Since(began); took != duty.Silence {
			t.Errorf("another controller answered after %s, want %s", took, duty.Silence)
		}
	})
}
