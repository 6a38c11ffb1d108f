// Package cancel owns the cancelled messages of a timer extent: which messages are cancelled, the groups that keep
// them, and the cancellations that are being decided.
package cancel

import (
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// Outcome is what came of cancelling a message, for one group.
type Outcome = core.CancelOutcome

// See core.
const (
	Cancelled = core.CancelDone
	Delivered = core.CancelDelivered
	Due       = core.CancelDue
)

// Limits of a Book. All messages of an extent can be cancelled.
const (
	MaxCalled  = 32 << 10 // bytes of the window: twice what a bit for each message of an extent takes
	MaxKept    = 1000     // exceptions
	MaxPending = 500      // messages that are decided on at a time
)

const (
	// Patience is how long a message stays with the attempt that is deciding on it before another one may take it over.
	Patience = 10 * time.Second
	// given up: an attempt of which nothing is left.
	abandoned = time.Minute
)

// Book is what is known of one extent. It changes as a whole:
//
//	      Begin                 Decide
//	─ ────────────▶ pending ──────────────▶ called, but for the groups for which it is kept
//	▲                  │ Drop: nobody decides
//	└──────────────────┘
//
// While a message is pending no owner of a share hands it out for the first time: those that have the share are asked
// after Begin, and those that resume it later read the book before. So what their answers say holds until it is
// decided, whoever dies meanwhile.
type Book struct {
	Called  []byte    `json:"called,omitempty"` // a window of seqs, see core/acklevel
	Kept    []Kept    `json:"kept,omitempty"`
	Pending []Pending `json:"pending,omitempty"`
}

// Kept is a called message that a group keeps.
type Kept struct {
	Seq     core.Seq     `json:"seq"`
	Group   core.GroupID `json:"group"`
	Outcome Outcome      `json:"outcome"`
}

// Pending is a message that an attempt is deciding on.
type Pending struct {
	Seq     core.Seq  `json:"seq"`
	Attempt core.ID   `json:"attempt"`
	Began   time.Time `json:"began"`
}

// Window is what was called off; it is the caller's. CodeCorrupt.
func (b *Book) Window() (*acklevel.Window, error) {
	if len(b.Called) == 0 {
		return &acklevel.Window{}, nil
	}
	w, _, rest, err := acklevel.Decode(b.Called, len(b.Called))
	if err == nil && len(rest) > 0 {
		err = core.Errorf(core.CodeCorrupt, "%d bytes follow the cancelled messages", len(rest))
	}
	return w, err
}

// Begin has an attempt decide on seqs; those that were decided before are left out of what it answers. CodeConflict:
// another attempt is deciding; CodeThrottled: too many are; then nothing has changed.
func (b *Book) Begin(attempt core.ID, seqs []core.Seq, now time.Time) (undecided []core.Seq, err error) {
	called, err := b.Window()
	if err != nil {
		return nil, err
	}
	pending := slices.DeleteFunc(slices.Clone(b.Pending), func(p Pending) bool { return now.Sub(p.Began) > abandoned })
	for _, seq := range seqs {
		if called.Done(seq) || slices.Contains(undecided, seq) {
			continue
		}
		undecided = append(undecided, seq)
		i := slices.IndexFunc(pending, func(p Pending) bool { return p.Seq == seq })
		switch p := (Pending{Seq: seq, Attempt: attempt, Began: now}); {
		case i < 0:
			pending = append(pending, p)
		case pending[i].Attempt != attempt && now.Sub(pending[i].Began) < Patience:
			return nil, core.Errorf(core.CodeConflict, "message %d is being cancelled by another call; try again", seq)
		default:
			pending[i] = p
		}
	}
	if len(pending) > MaxPending {
		return nil, &core.Error{Code: core.CodeThrottled, Text: "too many messages of the extent are being cancelled; try again", RetryAfter: time.Second}
	}
	b.Pending = pending
	return undecided, nil
}

// Decide calls the messages of an attempt off, but for the groups that keep them. CodeConflict: it is not the attempt's
// to decide on all of them any more; CodeTooLarge: the book is full; then nothing has changed.
func (b *Book) Decide(attempt core.ID, seqs []core.Seq, kept []Kept) error {
	called, err := b.Window()
	if err != nil {
		return err
	}
	mine := func(p Pending) bool { return p.Attempt == attempt && slices.Contains(seqs, p.Seq) }
	n := 0
	for _, p := range b.Pending {
		if mine(p) {
			called.Ack(p.Seq)
			n++
		}
	}
	if n != len(seqs) {
		return core.Errorf(core.CodeConflict, "another call took over the cancelling of %d messages; try again", len(seqs)-n)
	}
	if len(b.Kept)+len(kept) > MaxKept {
		return core.Errorf(core.CodeTooLarge, "groups had too many cancelled messages of the extent before, more than %d; nothing was cancelled", MaxKept)
	}
	window, _ := called.Append(nil)
	if len(window) > MaxCalled {
		return core.Errorf(core.CodeTooLarge, "the cancelled messages of the extent take more than %d bytes; nothing was cancelled", MaxCalled)
	}
	b.Called, b.Kept = window, append(slices.Clone(b.Kept), kept...)
	b.Pending = slices.DeleteFunc(slices.Clone(b.Pending), mine)
	return nil
}

// Drop has nobody decide on what attempts began. It reports whether there was anything.
func (b *Book) Drop(attempts ...core.ID) bool {
	left := slices.DeleteFunc(slices.Clone(b.Pending), func(p Pending) bool { return slices.Contains(attempts, p.Attempt) })
	dropped := len(left) < len(b.Pending)
	b.Pending = left
	return dropped
}

// Outcome is what was decided of a message for a group that there is, or will be; called is false when it was not
// called off.
func (b *Book) Outcome(called *acklevel.Window, seq core.Seq, group core.GroupID) Outcome {
	if !called.Done(seq) {
		return ""
	}
	for _, k := range b.Kept {
		if k.Seq == seq && k.Group == group {
			return k.Outcome
		}
	}
	return Cancelled
}

// KeptBy are the called messages that a group keeps; nil: none.
func (b *Book) KeptBy(group core.GroupID) map[core.Seq]bool {
	var out map[core.Seq]bool
	for _, k := range b.Kept {
		if k.Group == group {
			if out == nil {
				out = make(map[core.Seq]bool)
			}
			out[k.Seq] = true
		}
	}
	return out
}

// ForAll reports whether no group that there is, or will be, keeps a message that was called off.
func (b *Book) ForAll(called *acklevel.Window, seq core.Seq) bool {
	return called.Done(seq) && !slices.ContainsFunc(b.Kept, func(k Kept) bool { return k.Seq == seq })
}
