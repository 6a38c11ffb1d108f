package controller

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// paxos notes the calls that cost rounds of Paxos in Cassandra: compare-and-sets, and reads at Serial.
type paxos struct {
	metadata.Store
	mu    sync.Mutex
	calls []string
}

func (p *paxos) note(name string, t metadata.Table) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, name+" "+t.Name)
}

// of are the calls during f, but for those of the leases that a controller has beside.
func (p *paxos) of(f func()) []string {
	p.mu.Lock()
	p.calls = nil
	p.mu.Unlock()
	f()
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.calls), func(c string) bool { return strings.HasSuffix(c, metadata.Leases.Name) })
}

func (p *paxos) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	p.note("insert", t)
	return p.Store.Insert(ctx, t, k, value)
}

func (p *paxos) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	p.note("update", t)
	return p.Store.Update(ctx, t, k, old, value, ttl)
}

func (p *paxos) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	p.note("delete", t)
	return p.Store.Delete(ctx, t, k, old)
}

func (p *paxos) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if t.Rule == metadata.RuleCAS && c == metadata.Serial {
		p.note("read", t)
	}
	return p.Store.Get(ctx, t, k, c)
}

func (p *paxos) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if t.Rule == metadata.RuleCAS && c == metadata.Serial {
		p.note("list", t)
	}
	return p.Store.List(ctx, t, partition, after, limit, c)
}

// TestPaxos_OfExtents counts what the life of an extent costs beyond plain reads and writes. An extent of an AP queue
// is created without any; a seal takes two compare-and-sets; the head of a CP queue moves by one.
func TestPaxos_OfExtents(t *testing.T) {
	p := &paxos{Store: memory.New()}
	bubble(t, harnessOptions{stores: 3, edit: beside, meta: p}, func(r *harness) {
		ap, cp := r.queue(3, 2), r.chainedQueue()
		r.sleep(time.Minute) // what is new is known
		var e, head, next core.Extent
		for _, c := range []struct {
			what string
			do   func()
			want []string
		}{
			{"an AP extent is created", func() { e = r.extent(ap, 10) }, nil},
			{"it is sealed", func() { r.end(e) }, []string{"insert seal", "update seal"}},
			{"the first head of a CP queue", func() { head = r.extent(cp, 10) }, []string{"insert head"}},
			{"it is sealed", func() { r.end(head) }, []string{"insert seal", "update seal"}},
			{"the next head", func() { next = r.extent(cp, 10) }, []string{"update head"}},
		} {
			if got := p.of(c.do); !slices.Equal(got, c.want) {
				t.Errorf("%s: %q, want %q", c.what, got, c.want)
			}
		}
		if next.Chain != 2 {
			t.Errorf("the next head is %+v", next)
		}
	})
}

func (r *harness) end(e core.Extent) {
	r.t.Helper()
	_, err := r.seal(e, 10)
	r.ok(err)
}
