package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// witness stands before the metadata and sees to it that no decision is ever changed: the end of an extent, its
// retirement, the end of an operation, what is acknowledged, and the order of a chain, whose next extent is made when
// the one before has its end. Safe for concurrent use.
type witness struct {
	metadata.Store
	mu struct {
		sync.Mutex
		whole  metadata.Store // see looksAt; nil: heads are not looked at
		seals  map[metadata.Key]metadata.SealRecord
		levels map[metadata.Key]core.Seq  // of acknowledgements, by checkpoint
		stamps map[metadata.Key]time.Time // of the checkpoints that say so
		once   map[string]bool            // ids of groups that deliver at most once
		ended  map[core.ID]metadata.OperationRecord
		wrong  []string
	}
}

func newWitness(behind metadata.Store) *witness {
	w := &witness{Store: behind}
	w.mu.seals = make(map[metadata.Key]metadata.SealRecord)
	w.mu.stamps = make(map[metadata.Key]time.Time)
	w.mu.once = make(map[string]bool)
	w.mu.ended = make(map[core.ID]metadata.OperationRecord)
	w.mu.levels = make(map[metadata.Key]core.Seq)
	return w
}

func (w *witness) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	premature := w.premature(ctx, t, value)
	err := w.Store.Insert(ctx, t, k, value)
	w.headMoved(premature, err)
	if err == nil && t.Name == metadata.Seals.Name {
		w.seal(k, value)
	}
	return err
}

func (w *witness) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	if t.Name == metadata.Operations.Name && k.Partition == metadata.PartitionOperation {
		w.mu.Lock()
		defer w.mu.Unlock()
		err := w.Store.Update(ctx, t, k, old, value, ttl)
		if err == nil {
			w.operationLocked(value)
		}
		return err
	}
	if t.Name != metadata.Seals.Name {
		premature := w.premature(ctx, t, value)
		err := w.Store.Update(ctx, t, k, old, value, ttl)
		w.headMoved(premature, err)
		return err
	}
	w.mu.Lock() // so that changes are seen in their order
	defer w.mu.Unlock()
	err := w.Store.Update(ctx, t, k, old, value, ttl)
	if err == nil {
		w.sealLocked(k, value)
	}
	return err
}

// looksAt gives it the metadata as it is, without faults.
func (w *witness) looksAt(whole metadata.Store) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.whole = whole
}

// premature says why a head must not move to where a row has it: the place before has no end yet. A controller knows
// that end before it moves the head.
func (w *witness) premature(ctx context.Context, t metadata.Table, value []byte) string {
	w.mu.Lock()
	whole := w.mu.whole
	w.mu.Unlock()
	var next metadata.HeadRecord
	if t.Name != metadata.Heads.Name || whole == nil || json.Unmarshal(value, &next) != nil || next.Extent.Chain < 2 {
		return ""
	}
	head, err := metadata.ReadHead(context.WithoutCancel(ctx), whole, next.Queue, metadata.Serial)
	if err != nil || head.Extent.Chain+1 != next.Extent.Chain { // it does not move
		return ""
	}
	row, _, err := metadata.Read[metadata.SealRecord](context.WithoutCancel(ctx), whole, metadata.Seals, metadata.SealKey(head.Extent.ID), metadata.Serial)
	if err == nil && row.State.HasEnd() {
		return ""
	}
	return fmt.Sprintf("queue %s has two heads: place %d was made while place %d, extent %s, was %q (%v)", next.Queue, next.Extent.Chain, head.Extent.Chain, head.Extent.ID, row.State, err)
}

// headMoved notes a head that was premature, unless it did not move.
func (w *witness) headMoved(premature string, err error) {
	if premature == "" || err != nil && core.CodeOf(err) != core.CodeUnknown {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sayLocked("%s", premature)
}

func (w *witness) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	if t.Name == metadata.Checkpoints.Name {
		for _, r := range rows {
			w.level(r)
		}
	}
	return w.Store.PutAll(ctx, t, rows, c)
}

// operationLocked looks at the row of the last operation of an object.
func (w *witness) operationLocked(value []byte) {
	var r metadata.OperationRecord
	if err := json.Unmarshal(value, &r); err != nil {
		w.sayLocked("an operation does not decode: %v", err)
		return
	}
	if was, ended := w.mu.ended[r.ID]; ended && (was.State != r.State || !was.Changed.Equal(r.Changed)) {
		w.sayLocked("operation %s had ended as %s by %s, and became %s by %s", r.ID, was.State, was.By, r.State, r.By)
	}
	if r.Ended() {
		w.mu.ended[r.ID] = r
	}
}

func (w *witness) seal(k metadata.Key, value []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sealLocked(k, value)
}

func (w *witness) sealLocked(k metadata.Key, value []byte) {
	var r metadata.SealRecord
	if err := json.Unmarshal(value, &r); err != nil {
		w.sayLocked("seal row %s does not decode: %v", k.Row, err)
		return
	}
	old, known := w.mu.seals[k]
	w.mu.seals[k] = r
	switch {
	case r.State == core.ExtentRetired && !old.State.HasEnd(): // with its queue: nobody asks where it ends
	case r.State.HasEnd() && r.State != core.ExtentRetired && len(r.Holders) == 0:
		w.sayLocked("extent %s is %s without a holder", k.Row, r.State)
	case r.State.HasEnd() && r.State != core.ExtentRetired && r.L < r.Floor:
		w.sayLocked("extent %s ends at %d, below its floor %d", k.Row, r.L, r.Floor)
	case r.LostFrom > 0 && r.LostFrom <= r.Floor:
		w.sayLocked("extent %s was given up from %d on, its writer had acknowledged up to %d", k.Row, r.LostFrom, r.Floor)
	case !known:
	case old.State == core.ExtentRetired && r.State != core.ExtentRetired:
		w.sayLocked("extent %s was retired, and became %s", k.Row, r.State)
	case !r.Extent.Equal(old.Extent):
		w.sayLocked("the tuple of extent %s became %+v, was %+v", k.Row, r.Extent, old.Extent)
	case old.State.HasEnd() && (!r.State.HasEnd() || r.L != old.L || r.Checksum != old.Checksum):
		w.sayLocked("extent %s became %s at %d (%08x), was %s at %d (%08x)", k.Row, r.State, r.L, r.Checksum, old.State, old.L, old.Checksum)
	case old.LostFrom > 0 && (r.LostFrom == 0 || r.LostFrom > old.LostFrom || r.LostFrom == old.LostFrom && *r.LeftChecksum != *old.LeftChecksum):
		w.sayLocked("extent %s was given up from %d on (%08x left), and became so from %d on (%08x)", k.Row, old.LostFrom, *old.LeftChecksum, r.LostFrom, *r.LeftChecksum)
	case r.Version < old.Version || r.Floor < old.Floor:
		w.sayLocked("extent %s went from version %d, floor %d to version %d, floor %d", k.Row, old.Version, old.Floor, r.Version, r.Floor)
	}
}

// claims names a group whose checkpoints say more than is done: what is to be handed out once its claim is durable too,
// and is given back when it never was (ADR 0013). That nothing comes twice is seen by its consumers.
func (w *witness) claims(group core.GroupID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.once[group.String()] = true
}

// level looks at a checkpoint that one run of an output host writes: what it says is acknowledged stays so.
func (w *witness) level(r metadata.Row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	state, err := dispatch.DecodeState(r.Value)
	if err != nil {
		w.sayLocked("checkpoint %v does not decode: %v", r.Key, err)
		return
	}
	now := state.Frontier()
	if r.Written.Before(w.mu.stamps[r.Key]) { // it comes late, and the row stays as it is
		return
	}
	w.mu.stamps[r.Key] = r.Written
	if group, _, _ := strings.Cut(r.Key.Partition, "/"); w.mu.once[group] {
		return
	}
	if now < w.mu.levels[r.Key] {
		w.sayLocked("the ack level of %v went back from %d to %d", r.Key, w.mu.levels[r.Key], now)
	}
	w.mu.levels[r.Key] = now
}

func (w *witness) sayLocked(format string, args ...any) {
	w.mu.wrong = append(w.mu.wrong, fmt.Sprintf(format, args...))
}

// findings are what was wrong so far.
func (w *witness) findings() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.wrong
}
