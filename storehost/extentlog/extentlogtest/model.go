package extentlogtest

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/wire"
)

// replica is what the model knows of one extent.
type replica struct {
	extent         core.Extent
	opened, fenced bool
	sealed         bool
	run            core.RunID
	batches        []wire.Batch
	committed      core.Seq
	next           core.Seq // where a reader in order goes on
}

func (r *replica) last() core.Seq {
	if n := len(r.batches); n > 0 {
		return r.batches[n-1].Last()
	}
	return 0
}

func (r *replica) checksum() uint32 {
	if n := len(r.batches); n > 0 {
		return r.batches[n-1].Checksum
	}
	return 0
}

func (r *replica) writer() *Writer {
	return &Writer{Last: r.last(), Checksum: r.checksum(), Time: int64(r.last())}
}

func (r *replica) bytes() []byte {
	var out []byte
	for _, b := range r.batches {
		out = append(out, b.Bytes...)
	}
	return out
}

// model drives a log and a plain copy of it in memory.
type model struct {
	t        *testing.T
	fs       vfs.FS
	open     OpenFunc
	log      extentlog.Log
	replicas []*replica
}

// RunModel compares the engine with a plain model over random histories of all calls and restarts.
func RunModel(t *testing.T, open OpenFunc) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{t: t, fs: vfs.NewMem(), open: open}
		m.start(rt)
		defer func() { m.expect(rt, "close", m.log.Close(), "") }()
		rt.Repeat(map[string]func(*rapid.T){
			"": m.check, "open": m.openNew, "openAgain": m.openAgain, "append": m.append, "fence": m.fence, "fenceNew": m.fenceNew,
			"seal": m.seal, "copy": m.copy, "commit": m.commit, "read": m.read, "remove": m.remove, "restart": m.restart,
		})
	})
}

func (m *model) start(rt *rapid.T) {
	l, err := m.open(m.fs)
	m.expect(rt, "open the log", err, "")
	m.log = l
}

func (m *model) restart(rt *rapid.T) {
	m.expect(rt, "close", m.log.Close(), "")
	m.start(rt)
	for _, r := range m.replicas { // a committed seq survives only with what was written after it
		s, err := m.log.State(r.extent.ID)
		m.expect(rt, "state", err, "")
		if s.Committed > r.committed {
			rt.Fatalf("committed %d came back, was %d", s.Committed, r.committed)
		}
		r.committed = s.Committed
	}
}

func (m *model) expect(rt *rapid.T, what string, err error, want core.Code) {
	if core.CodeOf(err) != want {
		rt.Fatalf("%s: got %v (%q), want %q", what, err, core.CodeOf(err), want)
	}
}

func (m *model) pick(rt *rapid.T) *replica {
	if len(m.replicas) == 0 {
		rt.Skip("no extent yet")
	}
	return rapid.SampledFrom(m.replicas).Draw(rt, "extent")
}

func (m *model) openNew(rt *rapid.T) {
	e := Extent()
	m.expect(rt, "open", m.log.Open(e), "")
	m.replicas = append(m.replicas, &replica{extent: e, opened: true, run: m.log.Identity().Run})
}

func (m *model) openAgain(rt *rapid.T) {
	r := m.pick(rt)
	want := core.CodeExists
	if r.fenced {
		want = core.CodeFenced
	}
	m.expect(rt, "open again", m.log.Open(r.extent), want)
}

func (m *model) append(rt *rapid.T) {
	r := m.pick(rt)
	w := r.writer()
	skip := rapid.IntRange(0, 9).Draw(rt, "skip") == 0
	if skip {
		w.Last++
	}
	batch := w.Batch(rapid.IntRange(1, 5).Draw(rt, "count"), rapid.IntRange(0, 3000).Draw(rt, "size"))
	committed := core.Seq(rapid.Uint64Range(0, uint64(r.last())).Draw(rt, "committed"))
	durable, err := Append(m.log, r.extent.ID, batch, committed)
	r.committed = max(r.committed, committed)
	switch {
	case r.fenced, r.run != m.log.Identity().Run:
		m.expect(rt, "append", err, core.CodeFenced)
	case skip:
		m.expect(rt, "append", err, core.CodeGap)
	default:
		m.expect(rt, "append", err, "")
		m.add(r, batch)
		if durable != r.last() {
			rt.Fatalf("append answered %d, want %d", durable, r.last())
		}
	}
}

func (m *model) add(r *replica, batch []byte) {
	b, err := wire.DecodeBatch(batch)
	must(m.t, err)
	r.batches = append(r.batches, b)
}

func (m *model) fence(rt *rapid.T) {
	r := m.pick(rt)
	_, err := m.log.Fence(r.extent, 0)
	m.expect(rt, "fence", err, "")
	r.fenced = true
}

func (m *model) fenceNew(rt *rapid.T) {
	e := Extent()
	_, err := m.log.Fence(e, 0)
	m.expect(rt, "fence", err, "")
	m.replicas = append(m.replicas, &replica{extent: e, fenced: true})
}

func (m *model) seal(rt *rapid.T) {
	r := m.pick(rt)
	keep := rapid.IntRange(0, len(r.batches)).Draw(rt, "keep")
	short := replica{batches: r.batches[:keep]}
	err := m.log.Seal(r.extent.ID, short.last(), short.checksum(), 0)
	switch {
	case !r.fenced, r.sealed && short.last() != r.last(), short.last() < r.committed:
		m.expect(rt, "seal", err, core.CodeConflict)
	default:
		m.expect(rt, "seal", err, "")
		r.sealed, r.batches = true, short.batches
	}
}

func (m *model) copy(rt *rapid.T) {
	r := m.pick(rt)
	batch := r.writer().Batch(rapid.IntRange(1, 3).Draw(rt, "count"), 20)
	_, err := m.log.Copy(r.extent.ID, batch)
	if !r.fenced || r.sealed {
		m.expect(rt, "copy", err, core.CodeConflict)
		return
	}
	m.expect(rt, "copy", err, "")
	m.add(r, batch)
}

func (m *model) commit(rt *rapid.T) {
	r := m.pick(rt)
	seq := core.Seq(rapid.Uint64Range(0, uint64(r.last())).Draw(rt, "seq"))
	m.log.Commit(r.extent.ID, seq)
	r.committed = max(r.committed, seq)
}

func (m *model) read(rt *rapid.T) {
	r := m.pick(rt)
	from := core.Seq(rapid.Uint64Range(1, uint64(r.last())+2).Draw(rt, "from"))
	if rapid.Bool().Draw(rt, "on") {
		from = max(r.next, 1)
	}
	upTo := core.Seq(rapid.Uint64Range(0, uint64(r.last())+2).Draw(rt, "upTo"))
	most := rapid.IntRange(1, 20000).Draw(rt, "most")
	var want []byte
	for _, b := range r.batches {
		if b.Last() < from {
			continue
		}
		if b.Last() > upTo || len(want) > 0 && len(want)+len(b.Bytes) > most {
			break
		}
		want = append(want, b.Bytes...)
	}
	got, err := m.log.Read(r.extent.ID, from, upTo, most)
	m.expect(rt, "read", err, "")
	// An engine may answer less than fits, but whole batches and at least one.
	if !bytes.HasPrefix(want, got) || len(got) == 0 && len(want) > 0 {
		rt.Fatalf("read %d…%d of at most %d bytes: got %d bytes, want a prefix of %d", from, upTo, most, len(got), len(want))
	}
	for len(got) > 0 {
		var b wire.Batch
		if b, got, err = wire.NextBatch(got); err != nil {
			rt.Fatal(err)
		}
		r.next = b.Last() + 1
	}
}

func (m *model) remove(rt *rapid.T) {
	r := m.pick(rt)
	m.expect(rt, "remove", Remove(m.log, r.extent, 1), "")
	for i := range m.replicas {
		if m.replicas[i] == r {
			m.replicas = append(m.replicas[:i], m.replicas[i+1:]...)
			return
		}
	}
}

// check compares all states.
func (m *model) check(rt *rapid.T) {
	n := 0
	m.expect(rt, "list", m.log.List(func(extentlog.State) bool { n++; return true }), "")
	if n != len(m.replicas) {
		rt.Fatalf("%d extents are listed, want %d", n, len(m.replicas))
	}
	for _, r := range m.replicas {
		s, err := m.log.State(r.extent.ID)
		m.expect(rt, "state", err, "")
		if s.Last != r.last() || s.Checksum != r.checksum() || s.Opened != r.opened || s.Fenced != r.fenced || s.Sealed != r.sealed ||
			s.Committed != r.committed || s.Bytes != uint64(len(r.bytes())) || s.Header.Run != r.run || s.Damaged {
			rt.Fatalf("state %+v, want last %d, checksum %08x, opened %v, fenced %v, sealed %v, committed %d, %d bytes",
				s, r.last(), r.checksum(), r.opened, r.fenced, r.sealed, r.committed, len(r.bytes()))
		}
	}
}
