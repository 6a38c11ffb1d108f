package inputhost

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// TestHost_NoMajority: while the controller says that no majority of the metadata answers, a message of a CP queue
// without an open extent is refused within three seconds, by a publisher that goes on afterwards. A loss of a second
// and a half fails nothing.
func TestHost_NoMajority(t *testing.T) {
	for _, test := range []struct {
		name    string
		lasting time.Duration
		fresh   bool // the publisher comes while the loss lasts
	}{
		{"shorter than a publisher waits", 1500 * time.Millisecond, false},
		{"shorter than a new publisher waits", 1500 * time.Millisecond, true},
		{"longer", time.Minute, false},
		{"longer, and the publisher is new", time.Minute, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			chained(t, nil, func(r *harness) {
				next := r.ctl.mu.chain
				p := r.publisher("p", chainPath)
				p.send()
				p.flush()
				until := time.Now().Add(test.lasting)
				r.ctl.set(func() {
					r.ctl.mu.chain = func() (uint64, error) {
						if time.Now().Before(until) {
							return 0, core.Errorf(core.CodeNoMajority, "the metadata have no majority here")
						}
						return next()
					}
				})
				r.failAll()
				synctest.Wait()
				if test.fresh {
					p = r.unconnected("q", chainPath)
				}
				began := time.Now()
				err := p.try(30 * time.Second)
				took := time.Since(began)
				if test.lasting < 2*time.Second {
					if err != nil {
						t.Errorf("%v after %s", err, took)
					}
					return
				}
				if core.CodeOf(err) != core.CodeNoMajority || !strings.Contains(err.Error(), "no majority here") || took > 3500*time.Millisecond {
					t.Errorf("%v after %s; want it refused within three seconds, and why", err, took)
				}
				time.Sleep(5 * time.Second)
				began = time.Now()
				if err := p.try(30 * time.Second); core.CodeOf(err) != core.CodeNoMajority || time.Since(began) > 3*time.Second {
					t.Errorf("later: %v after %s", err, time.Since(began))
				}
				time.Sleep(time.Until(until))
				if err := p.try(10 * time.Second); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			})
		})
	}
}

// apart is metadata of several copies. Reads that need a majority are not answered while it is cut off.
type apart struct {
	metadata.Store
	majority metadata.Majority
	cut      bool
}

func (a *apart) Majority() *metadata.Majority { return &a.majority }

func (a *apart) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if a.cut && c != metadata.One {
		<-ctx.Done()
		return metadata.Row{}, core.Errorf(core.CodeUnavailable, "no answer")
	}
	return a.Store.Get(ctx, t, k, c)
}

// TestChain_WhyUnsealed: publishers are told that no majority of the metadata answers if that is why the head cannot be
// sealed, and only then.
func TestChain_WhyUnsealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		defer store.Close()
		why := core.Errorf(core.CodeDeadline, "the controller does not answer")
		for name, test := range map[string]struct {
			meta metadata.Store
			want core.Code
		}{
			"in one place":       {store, core.CodeUnavailable},
			"a majority answers": {&apart{Store: store}, core.CodeUnavailable},
			"none answers":       {&apart{Store: store, cut: true}, core.CodeNoMajority},
		} {
			q := &queue{h: &Host{deps: Deps{Meta: test.meta}}, path: chainPath}
			began := time.Now()
			err := q.unsealedFor(t.Context(), core.ExtentID{ID: core.ID{1}}, why)
			if core.CodeOf(err) != test.want || time.Since(began) > metadata.MajorityWait {
				t.Errorf("%s: %v after %s", name, err, time.Since(began))
			}
		}
	})
}
