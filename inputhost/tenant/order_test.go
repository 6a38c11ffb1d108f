package tenant

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestTenants_AskTheControllersOfEach has two namespaces that two controllers divide, of which one stops, or leaves the
// namespace out.
func TestTenants_AskTheControllersOfEach(t *testing.T) {
	const other = "/else"
	bubble(t, func(r *harness) {
		asked := func() (names [][]string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, req := range r.mu.asked {
				var of []string
				for _, n := range req.Namespaces {
					of = append(of, n.Namespace)
				}
				slices.Sort(of)
				names = append(names, of)
			}
			r.mu.asked = nil
			return names
		}
		r.mu.order = core.ID.String
		r.limit(core.NamespaceSpec{MessagesPerSecond: 1000})
		err := metadata.Create(context.Background(), r.meta, metadata.Namespaces, metadata.NamespaceKey(other), metadata.NamespaceRecord{Spec: core.NamespaceSpec{Name: other, MessagesPerSecond: 1000}})
		if err == nil {
			err = r.Know(context.Background(), other)
		}
		if err != nil {
			r.t.Fatal(err)
		}
		r.answers(all(800, 0, 0))
		a, b := r.gate(0), r.Open(other+"/q", core.QueueID{ID: core.NewID(time.Now())}, 0, func() []Fill { return nil })
		defer a.Close()
		defer b.Close()
		passes := func(when string, g *Gate, rate int) {
			r.t.Helper()
			if n := pass(g, 1000, 1, 10*time.Second); n < rate*9 || n > rate*12 {
				r.t.Errorf("%s: %d messages of %s passed in 10 s, want %d a second", when, n, g.path, rate)
			}
		}
		settle := func() { // leases of before are over
			time.Sleep(30 * time.Second)
			synctest.Wait()
		}
		settle()
		passes("both answer", b, 800)
		for _, names := range asked() {
			if len(names) != 1 {
				r.t.Errorf("one controller was asked about %v", names)
			}
		}
		r.answers(func(req *pb.LeaseQuotaRequest) (*pb.LeaseQuotaResponse, error) {
			if req.Namespaces[0].Namespace == other {
				return nil, core.ErrMoved
			}
			return all(800, 0, 0)(req)
		})
		settle()
		passes("one stops", a, 800)
		passes("one stops", b, 50) // 1000 / 2 hosts / 10
		r.answers(func(req *pb.LeaseQuotaRequest) (*pb.LeaseQuotaResponse, error) {
			out, err := all(800, 0, 0)(req)
			out.Namespaces = slices.DeleteFunc(out.Namespaces, func(l *pb.NamespaceLease) bool { return l.Namespace == other })
			return out, err
		})
		r.mu.Lock()
		r.mu.order = nil
		r.mu.Unlock()
		settle()
		asked()
		passes("one is left out", a, 800)
		passes("one is left out", b, 50)
		for _, names := range asked() {
			if !slices.Equal(names, []string{space, other}) {
				r.t.Errorf("one controller was asked about %v", names)
			}
		}
		r.answers(all(800, 0, 0))
		settle()
		passes("all is divided", b, 800)
	})
}
