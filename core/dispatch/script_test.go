package dispatch_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
)

// began is the first instant of every script.
var began = time.Unix(1_700_000_000, 0)

// script owns the group that a file of testdata/transcripts drives, its shares, and their durable checkpoints.
type script struct {
	now    time.Time
	spec   core.GroupSpec
	group  *dispatch.Group
	shares []*share // in the order of the script
}

// share is one extent of a script.
type share struct {
	name    string
	kind    string // log, timers, merged or returning
	rate    int    // of a merged one, messages per second
	rules   *dispatch.Share
	durable []byte // the blob of the last checkpoint that is durable
	pending []byte // the blob of the last checkpoint
	token   uint64 // of it
	records []record
}

// record is a message as the extent holds it: a successor reads it again.
type record struct {
	seq       core.Seq
	size      int
	enqueued  time.Time
	deliverAt time.Time // of a timer extent
	expire    time.Time // zero: never
	attempts  uint16    // of a returning one
}

// command is one kind of event; its text is what the group decides.
type command func(s *script, a args) string

var commands = map[string]command{
	"group": (*script).newGroup, "update": (*script).update, "share": (*script).addShare, "offer": (*script).offer,
	"take": (*script).take, "ack": (*script).ack, "return": (*script).giveBack, "nack": (*script).nack, "reject": (*script).reject,
	"extend": (*script).extend, "leave": (*script).leave, "want": (*script).want, "advance": (*script).advance,
	"checkpoint": (*script).checkpoint, "saved": (*script).saved, "save": (*script).save, "crash": (*script).crash,
	"take-dead": (*script).takeDead, "dead-lettered": (*script).deadLettered, "dead-failed": (*script).deadFailed,
	"take-retry-queueing": (*script).takeRetryQueueing, "retry-queued": (*script).retryQueued, "retry-queue-failed": (*script).retryQueueFailed,
	"show": (*script).show, "depth": (*script).depth, "counters": (*script).counters, "breaker": (*script).breaker, "elsewhere": (*script).elsewhere,
}

// TestTranscripts replays testdata/transcripts: each file tells, event by event, what a group decides. The scripts use
// the public API alone, so that they outlive the shape of the package. `go test ./core/dispatch -run TestTranscripts
// -rewrite` writes the answers anew; each line that changes is a change of the delivery rules.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		s := &script{now: began}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			do := commands[d.Cmd]
			if do == nil {
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			if out := do(s, args{t, d}); out != "" {
				return out
			}
			return "ok\n"
		})
	})
}

func (s *script) newGroup(a args) string {
	s.spec = a.spec(core.GroupSpec{Queue: "/q", Name: "g"})
	s.group, s.shares = dispatch.NewGroup(s.spec.WithDefaults()), nil
	return ""
}

func (s *script) update(a args) string {
	s.spec = a.spec(s.spec)
	s.group.Update(s.spec.WithDefaults(), s.now)
	return ""
}

func (s *script) addShare(a args) string {
	sh := &share{name: a.word(0), kind: a.text("kind", "log"), rate: a.number("rate", 0)}
	s.begin(sh, dispatch.State{})
	s.shares = append(s.shares, sh)
	return ""
}

// begin has the group's rules own a share from a state on.
func (s *script) begin(sh *share, st dispatch.State) {
	id := core.ExtentID{ID: core.ID{15: sh.name[0]}}
	if sh.kind == "timers" {
		sh.rules = s.group.AddTimers(id, st, s.now)
		return
	}
	sh.rules = s.group.AddShare(id, st, s.now)
	switch sh.kind {
	case "merged":
		sh.rules.Merged(sh.rate)
	case "returning":
		sh.rules.Returning()
	}
}

// offer brings the next messages of an extent.
func (s *script) offer(a args) string {
	sh := s.share(a)
	n := a.number("n", 1)
	first := core.Seq(len(sh.records) + 1)
	for i := range core.Seq(n) {
		r := record{
			seq: first + i, size: a.number("size", 10), enqueued: s.now.Add(-a.duration("age", 0)), deliverAt: s.now.Add(a.duration("due", 0)),
			attempts: uint16(a.number("attempts", 1)),
		}
		if d := a.duration("expire", 0); d > 0 {
			r.expire = s.now.Add(d)
		}
		sh.records = append(sh.records, r)
	}
	return outcome(s.bring(sh, sh.records[first-1:]))
}

// bring gives records to the rules as a reader does.
func (s *script) bring(sh *share, records []record) error {
	if len(records) == 0 {
		return nil
	}
	r := dispatch.Records{Base: records[0].seq, Offsets: []uint32{0}, Enqueued: records[0].enqueued.UnixMicro()}
	due := dispatch.DueRecords{Offsets: []uint32{0}}
	for _, x := range records {
		r.Bytes = append(r.Bytes, make([]byte, x.size)...)
		r.Offsets = append(r.Offsets, uint32(len(r.Bytes)))
		expire := int64(0)
		if !x.expire.IsZero() {
			expire = x.expire.UnixMilli()
		}
		r.Expire = append(r.Expire, expire)
		due.Seqs, due.Enqueued, due.DeliverAt = append(due.Seqs, x.seq), append(due.Enqueued, x.enqueued.UnixMicro()), append(due.DeliverAt, x.deliverAt.UnixMilli())
		if sh.kind == "returning" {
			r.History = append(r.History, dispatch.History{Origin: core.Receipt{Extent: core.ExtentID{ID: core.ID{0: 1}}, Seq: x.seq}, Attempts: x.attempts})
		}
	}
	if sh.kind == "timers" {
		due.Offsets, due.Bytes, due.Expire = r.Offsets, r.Bytes, r.Expire
		return sh.rules.OfferDue(due, s.now)
	}
	return sh.rules.Offer(r, s.now)
}

// advance lets time pass as the shell does: it stops at each deadline.
func (s *script) advance(a args) string {
	d, err := time.ParseDuration(a.word(0))
	if err != nil {
		a.d.Fatalf(a.t, "%v", err)
	}
	for until := s.now.Add(d); ; {
		at, ok := s.group.NextDeadline()
		if !ok || at.After(until) {
			s.now = until
			s.group.Tick(s.now)
			return ""
		}
		if at.After(s.now) {
			s.now = at
		}
		s.group.Tick(s.now)
	}
}

func (s *script) want(a args) string {
	s.group.Want(dispatch.Credit{Messages: a.number("credit", math.MaxInt), Bytes: math.MaxInt}, a.word(0) == "on")
	return ""
}

func (s *script) leave(a args) string {
	s.group.Leave(a.session(0))
	return ""
}

// checkpoint encodes a share; saved says that the blob is durable.
func (s *script) checkpoint(a args) string {
	sh := s.share(a)
	sh.pending, sh.token = sh.rules.Checkpoint(nil, a.has("final"), s.now)
	if sh.rules.Full() {
		return "full\n"
	}
	return ""
}

func (s *script) saved(a args) string {
	sh := s.share(a)
	sh.durable = sh.pending
	sh.rules.Saved(sh.token)
	return ""
}

// save is both, of one share or of all.
func (s *script) save(a args) string {
	for _, sh := range s.shares {
		if a.word(0) == "" || a.word(0) == sh.name {
			sh.durable, sh.token = sh.rules.Checkpoint(nil, a.has("final"), s.now)
			sh.rules.Saved(sh.token)
		}
	}
	return ""
}

// crash ends the owner. Another one resumes from the durable checkpoints and reads the extents again.
func (s *script) crash(a args) string {
	s.group = dispatch.NewGroup(s.spec.WithDefaults())
	for _, sh := range s.shares {
		var st dispatch.State
		if sh.durable != nil {
			var err error
			if st, err = dispatch.DecodeState(sh.durable); err != nil {
				a.d.Fatalf(a.t, "%v", err)
			}
		}
		s.begin(sh, st)
		from := sh.rules.ReadFrom()
		if sh.kind == "timers" {
			from = 1
		}
		if from <= core.Seq(len(sh.records)) {
			if err := s.bring(sh, sh.records[from-1:]); err != nil {
				a.d.Fatalf(a.t, "%v", err)
			}
		}
	}
	return ""
}

// outcome is the code of an error, or nothing.
func outcome(err error) string {
	if err == nil {
		return ""
	}
	return string(core.CodeOf(err)) + "\n"
}

// ago tells an instant as the time since the beginning of the script.
func ago(t time.Time) string { return "+" + t.Sub(began).Round(time.Millisecond).String() }

func (s *script) share(a args) *share {
	for _, sh := range s.shares {
		if sh.name == a.word(0) {
			return sh
		}
	}
	a.d.Fatalf(a.t, "no share %q", a.word(0))
	return nil
}

// name is the script's name of a share.
func (s *script) name(rules *dispatch.Share) string {
	for _, sh := range s.shares {
		if sh.rules == rules {
			return sh.name
		}
	}
	return "?"
}

// lines appends a line to what a command prints.
func lines(format string, b *strings.Builder, v ...any) { fmt.Fprintf(b, format+"\n", v...) }
