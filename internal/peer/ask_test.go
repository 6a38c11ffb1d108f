package peer

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/duty"
	"github.com/columbamq/columba/internal/netmem"
)

// controller answers RenewShares after a time with an error, or nil. Safe for concurrent use.
type controller struct {
	columbav1connect.UnimplementedControllerServiceHandler
	mu    sync.Mutex
	after time.Duration
	err   error
	asked int
}

const never = time.Hour

func (c *controller) RenewShares(ctx context.Context, _ *connect.Request[pb.RenewSharesRequest]) (*connect.Response[pb.RenewSharesResponse], error) {
	c.mu.Lock()
	c.asked++
	after, err := c.after, c.err
	c.mu.Unlock()
	if after > 0 {
		select {
		case <-time.After(after):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(&pb.RenewSharesResponse{}), nil
}

func (c *controller) set(after time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after, c.err = after, err
}

// cluster is a pool with controllers, by their rank for key.
type cluster struct {
	t           *testing.T
	pool        *Pool
	hosts       []Host
	controllers []*controller
	listeners   []*netmem.Listener
}

var key = core.ID{7}

func withControllers(t *testing.T, n int, f func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t}
		for i := range n {
			id := string(rune('a' + i))
			c.hosts = append(c.hosts, Host{core.HostID(id), id + ":1"})
		}
		c.hosts = core.Rank(key.String(), c.hosts, func(h Host) core.HostID { return h.ID })
		var wg sync.WaitGroup
		defer wg.Wait()
		for _, h := range c.hosts {
			at := &controller{}
			mux := http.NewServeMux()
			mux.Handle(columbav1connect.NewControllerServiceHandler(at))
			l, server := netmem.Listen(h.Address), &http.Server{Handler: mux}
			wg.Go(func() { server.Serve(l) })
			defer server.Close()
			c.controllers, c.listeners = append(c.controllers, at), append(c.listeners, l)
		}
		c.pool = NewPool(Config{Log: slog.New(slog.DiscardHandler), NetDial: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return c.listeners[slices.IndexFunc(c.hosts, func(h Host) bool { return h.Address == addr })].Dial(ctx)
		}})
		defer c.pool.Close()
		f(c)
	})
}

// ask puts a question for at most 10 s, and returns how long that took and who was asked.
func (c *cluster) ask() (took time.Duration, asked []int, err error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	for _, at := range c.controllers {
		at.mu.Lock()
		at.asked = 0
		at.mu.Unlock()
	}
	began := time.Now()
	_, err = Ask(ctx, c.pool, c.hosts, Question[any]{
		Key: key, Patience: duty.Silence, Elsewhere: func(err error) bool {
			return errors.Is(err, core.ErrUnavailable) || errors.Is(err, core.ErrMoved)
		},
		Call: func(ctx context.Context, at columbav1connect.ControllerServiceClient) (any, error) {
			return at.RenewShares(ctx, connect.NewRequest(&pb.RenewSharesRequest{}))
		},
	})
	took = time.Since(began)
	synctest.Wait()
	for _, at := range c.controllers {
		at.mu.Lock()
		asked = append(asked, at.asked)
		at.mu.Unlock()
	}
	return took, asked, convert.FromRPC(err)
}

// expect asks, and checks who was asked how long, and the code of the answer.
func (c *cluster) expect(name string, took time.Duration, asked []int, code core.Code) {
	c.t.Helper()
	t, a, err := c.ask()
	if t != took || !slices.Equal(a, asked) || core.CodeOf(err) != code {
		c.t.Errorf("%s: %v after %s, controllers asked %v times; want %q after %s, and %v", name, err, t, a, code, took, asked)
	}
}

// TestAsk_OnlyController: its call takes what time the caller has.
func TestAsk_OnlyController(t *testing.T) {
	withControllers(t, 1, func(c *cluster) {
		c.expect("it answers", 0, []int{1}, "")
		c.controllers[0].set(9*time.Second, nil)
		c.expect("it is slow", 9*time.Second, []int{1}, "")
		c.expect("it is slow again", 9*time.Second, []int{1}, "")
		c.controllers[0].set(never, nil)
		c.expect("it hangs", 10*time.Second, []int{1}, core.CodeDeadline)
		c.controllers[0].set(0, core.Errorf(core.CodeUnavailable, "no stores"))
		c.expect("it cannot", 0, []int{1}, core.CodeUnavailable)
	})
	withControllers(t, 0, func(c *cluster) { c.expect("none", 0, nil, core.CodeUnavailable) })
}

func TestAsk_Answers(t *testing.T) {
	no, cannot := core.Errorf(core.CodeNotFound, "no"), core.Errorf(core.CodeUnavailable, "cannot")
	type answer struct {
		after time.Duration
		err   error
	}
	const s = duty.Silence
	for name, c := range map[string]struct {
		answers []answer
		took    time.Duration
		asked   []int
		code    core.Code
	}{
		"the first does it":              {[]answer{{}, {}, {}}, 0, []int{1, 0, 0}, ""},
		"the first says no":              {[]answer{{0, no}, {}, {}}, 0, []int{1, 0, 0}, core.CodeNotFound},
		"the first cannot":               {[]answer{{0, cannot}, {}, {}}, 0, []int{1, 1, 0}, ""},
		"the first hangs":                {[]answer{{never, nil}, {}, {}}, s, []int{1, 1, 0}, ""},
		"two hang":                       {[]answer{{never, nil}, {never, nil}, {}}, 2 * s, []int{1, 1, 1}, ""},
		"all are slow":                   {[]answer{{2*s + 1, nil}, {2*s + 1, nil}, {2*s + 1, nil}}, 2*s + 1, []int{1, 1, 1}, ""},
		"all hang":                       {[]answer{{never, nil}, {never, nil}, {never, nil}}, 10 * time.Second, []int{1, 1, 1}, core.CodeDeadline},
		"none can":                       {[]answer{{0, cannot}, {0, cannot}, {0, cannot}}, 0, []int{1, 1, 1}, core.CodeUnavailable},
		"the first cannot, others hang":  {[]answer{{0, cannot}, {never, nil}, {never, nil}}, 2 * s, []int{1, 1, 1}, core.CodeUnavailable},
		"the first cannot, at length":    {[]answer{{s - 1, cannot}, {}, {}}, s - 1, []int{1, 1, 0}, ""},
		"the first answers late, and no": {[]answer{{s + 1, no}, {2, nil}, {}}, s + 1, []int{1, 1, 0}, core.CodeNotFound},
	} {
		withControllers(t, 3, func(k *cluster) {
			for i, a := range c.answers {
				k.controllers[i].set(a.after, a.err)
			}
			k.expect(name, c.took, c.asked, c.code)
		})
	}
}

// TestAsk_NobodyListens: controllers refuse connections, and one of them listens again.
func TestAsk_NobodyListens(t *testing.T) {
	withControllers(t, 2, func(c *cluster) {
		c.listeners[0].Close()
		for range 10 {
			c.expect("the first is away", 0, []int{0, 1}, "")
			time.Sleep(duty.Silence)
		}
		c.listeners[1].Close()
		c.pool.client.CloseIdleConnections()
		c.expect("both are away", 0, []int{0, 0}, core.CodeUnavailable)
	})
}

// TestAsk_SilentOnesComeLast and are tried beside the others, once a second.
func TestAsk_SilentOnesComeLast(t *testing.T) {
	withControllers(t, 3, func(c *cluster) {
		first := c.controllers[0]
		first.set(never, nil)
		c.expect("it falls silent", duty.Silence, []int{1, 1, 0}, "")
		for range 3 {
			c.expect("it is tried", 0, []int{1, 1, 0}, "")
			c.expect("it was just tried", 0, []int{0, 1, 0}, "")
			time.Sleep(duty.TryEvery)
		}
		time.Sleep(time.Minute)
		cannot := core.Errorf(core.CodeUnavailable, "no stores")
		c.controllers[1].set(0, cannot)
		c.controllers[2].set(0, cannot)
		c.expect("the others cannot, and nobody waits for it", 0, []int{1, 1, 1}, core.CodeUnavailable)
		c.controllers[1].set(0, nil)
		first.set(0, nil)
		time.Sleep(time.Minute)
		c.expect("it is back", 0, []int{1, 1, 0}, "")
		c.expect("it was heard", 0, []int{1, 0, 0}, "")
	})
}

// TestAsk_SilentOneMayBeTheOne: the others say that another one is responsible.
func TestAsk_SilentOneMayBeTheOne(t *testing.T) {
	withControllers(t, 3, func(c *cluster) {
		cannot, moved := core.Errorf(core.CodeUnavailable, "no stores"), core.Errorf(core.CodeMoved, "another one does it")
		c.controllers[0].set(0, cannot)
		c.controllers[1].set(0, cannot)
		c.controllers[2].set(never, nil)
		c.expect("the last one falls silent", duty.Silence, []int{1, 1, 1}, core.CodeUnavailable)
		c.expect("nobody waits for it", 0, []int{1, 1, 0}, core.CodeUnavailable)
		c.controllers[0].set(0, moved)
		c.controllers[1].set(0, moved)
		c.controllers[2].set(0, nil)
		c.expect("it is asked", 0, []int{1, 1, 1}, "")
		c.controllers[2].set(0, moved)
		c.expect("none is responsible", 0, []int{1, 1, 1}, core.CodeMoved)
	})
}

// TestAsk_WhenAllAreSilentNoneIs: they are asked as if nothing were known.
func TestAsk_WhenAllAreSilentNoneIs(t *testing.T) {
	withControllers(t, 2, func(c *cluster) {
		c.controllers[0].set(never, nil)
		c.controllers[1].set(never, nil)
		c.expect("all hang", 10*time.Second, []int{1, 1}, core.CodeDeadline)
		c.expect("all hang still", 10*time.Second, []int{1, 1}, core.CodeDeadline)
		c.controllers[0].set(0, nil)
		c.expect("the first is back", 0, []int{1, 0}, "")
	})
}

// TestAsk_CallsEnd with a caller that is gone, and with the pool; bubbles end when all goroutines have.
func TestAsk_CallsEnd(t *testing.T) {
	withControllers(t, 2, func(c *cluster) {
		c.controllers[0].set(never, nil)
		c.controllers[1].set(never, nil)
		ctx, cancel := context.WithTimeout(c.t.Context(), never)
		var wg sync.WaitGroup
		question := Question[any]{
			Key: key, Patience: duty.Silence, Elsewhere: func(error) bool { return true },
			Call: func(ctx context.Context, at columbav1connect.ControllerServiceClient) (any, error) {
				return at.RenewShares(ctx, connect.NewRequest(&pb.RenewSharesRequest{}))
			},
		}
		wg.Go(func() {
			if _, err := Ask(ctx, c.pool, c.hosts, question); err == nil {
				t.Error("an answer of nobody")
			}
		})
		time.Sleep(2 * duty.Silence)
		cancel()
		wg.Wait()
		wg.Go(func() {
			if _, err := Ask(c.t.Context(), c.pool, c.hosts, question); err == nil {
				t.Error("an answer of nobody")
			}
		})
		time.Sleep(2 * duty.Silence)
		c.pool.Close()
		wg.Wait()
		if _, err := Ask(c.t.Context(), c.pool, c.hosts, question); core.CodeOf(convert.FromRPC(err)) != core.CodeDraining {
			t.Errorf("after Close: %v", err)
		}
	})
}
