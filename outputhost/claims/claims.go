// Package claims owns the claims of at-most-once groups: only the owner of a claim may mark messages of a share as
// done, so no two owners deliver the same message.
package claims

import (
	"context"
	"sync/atomic"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Claim is the ownership of a share's record. It ends when another owner takes the share over, and is then refused; it
// does not notice by itself. Safe for concurrent use.
//
//	what an owner hands out is done in the record, written while the record was its own;
//	an owner begins with what the record says when it becomes its own: all that those before may have handed out is done
type Claim struct {
	meta metadata.Store
	key  metadata.Key
	term core.ID

	failed atomic.Pointer[error] // by the last Save; nil: it succeeded
	hung   atomic.Bool           // the last Release took all of the time that it had
}

// Take makes the record of a share this run's own, and answers what the owners before it have claimed: a checkpoint's
// blob, or nothing.
func Take(ctx context.Context, meta metadata.Store, key metadata.Key, run core.RunID, term core.ID) (*Claim, []byte, error) {
	c := &Claim{meta: meta, key: key, term: term}
	mine := metadata.ClaimRecord{Owner: run, Term: term}
	var before metadata.ClaimRecord
	err := metadata.Create(ctx, meta, metadata.Claims, key, mine)
	if core.CodeOf(err) == core.CodeExists {
		before, err = metadata.Change(ctx, meta, metadata.Claims, key, func(r *metadata.ClaimRecord) error {
			r.Owner, r.Term = run, term
			return nil
		})
	}
	if err != nil {
		return nil, nil, core.Errorf(core.CodeOf(err), "claim the share: %w", err)
	}
	return c, before.State, nil
}

// Save makes durable what is done, and with it what may be handed out. CodeStale when the share has another owner:
// nothing more may be handed out here that was not before. After any other error it may be saved.
func (c *Claim) Save(ctx context.Context, state []byte) error {
	err := c.change(ctx, func(r *metadata.ClaimRecord) { r.State = state })
	if err == nil {
		c.failed.Store(nil)
	} else {
		c.failed.Store(&err)
	}
	return err
}

// Err is why the last Save failed; nil: it succeeded, or there was none.
func (c *Claim) Err() error {
	if err := c.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// change alters the record while it is this claim's.
func (c *Claim) change(ctx context.Context, alter func(r *metadata.ClaimRecord)) error {
	_, err := metadata.Change(ctx, c.meta, metadata.Claims, c.key, func(r *metadata.ClaimRecord) error {
		switch {
		case r.Term.IsZero():
			return core.Errorf(core.CodeStale, "the share was given away by run %s", r.Owner)
		case r.Term != c.term:
			return core.Errorf(core.CodeStale, "the share was claimed by run %s", r.Owner)
		}
		alter(r)
		return nil
	})
	if core.CodeOf(err) == core.CodeNotFound {
		return core.Errorf(core.CodeStale, "the share is no longer there: %w", err)
	}
	return err
}

// Release makes durable what is done of a share that is given away, without what was claimed and not handed out: the
// next owner hands that out. It ends the claim, so that a Save that is still under way is refused or comes before it.
// CodeStale when the claim has ended before: then what is stored stays.
func (c *Claim) Release(ctx context.Context, state []byte) error {
	if err := ctx.Err(); err != nil { // it says nothing of this claim
		return core.Errorf(core.CodeDeadline, "there was no time left: %w", err)
	}
	err := c.change(ctx, func(r *metadata.ClaimRecord) { r.State, r.Term = state, core.ID{} })
	c.hung.Store(ctx.Err() != nil)
	return err
}

// Hung reports whether the last Release took all of the time that it had.
func (c *Claim) Hung() bool { return c.hung.Load() }
