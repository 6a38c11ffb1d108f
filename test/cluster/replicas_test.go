package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/storehost/extentlog/memdisk"
	"github.com/columbamq/columba/tools/verify"
	"github.com/columbamq/columba/wire"
)

// operatorLooks is how long an operator leaves a store to itself that asks for another disk: it has tried twice by
// then.
const operatorLooks = 5 * time.Minute

// settle waits until every extent is sealed, every replica knows it, and there are as many copies as there should be.
func (t *trial) settle() map[core.ExtentID]metadata.SealRecord {
	deadline, operator := time.Now().Add(30*time.Minute), time.Now().Add(operatorLooks)
	for {
		seals, err := t.seals()
		if err == nil {
			return seals
		}
		if time.Now().After(operator) {
			t.replaceDisks()
		}
		if time.Now().After(deadline) {
			t.t.Errorf("half an hour after all faults: %v", err)
			return seals
		}
		sleep(10 * time.Second)
	}
}

// replaceDisks does what a store says that cannot cut removed extents out of a damaged table, unless the store alone
// has an extent.
func (t *trial) replaceDisks() {
	for i := range t.plan.stores {
		id := Store(i)
		if n := t.hosts[id].process.log.Vitals().UncutExtents; n > 0 && t.onTwoDisks() {
			t.say("the disk of %s is replaced: %d extents get no new copy on it", id, n)
			t.eachDown([]core.HostID{id}, func(h *host) { h.crash((*memdisk.Disk).Wipe) })
			t.Up(id)
		}
	}
}

// seals are the ends of all extents; the error says what is not as it should be in the end.
func (t *trial) seals() (map[core.ExtentID]metadata.SealRecord, error) {
	out := make(map[core.ExtentID]metadata.SealRecord)
	var wrong []error
	live := 0
	for r, err := range metadata.Hints(context.Background(), t.Meta, metadata.HintLive, metadata.One) {
		if err != nil {
			return nil, err
		}
		live++
		s, _, err := metadata.Read[metadata.SealRecord](context.Background(), t.Meta, metadata.Seals, metadata.SealKey(r.Value.ID), metadata.Serial)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("extent %s of queue %s, made at %s for %s, which is on %v, is not sealed: %w", r.Value.ID, r.Value.Queue, r.Value.Created.Format("04:05.000"), r.Value.Input, t.storesOf(r.Value.Extent), err))
			continue
		}
		if s.State == core.ExtentRetired { // of a group that was deleted, or purged
			continue
		}
		out[r.Value.ID] = s
		if err := t.replicated(s); err != nil {
			wrong = append(wrong, err)
		}
	}
	return out, errors.Join(wrong...)
}

// storesOf an extent are the stores of its tuple that have it.
func (t *trial) storesOf(e core.Extent) (out []core.HostID) {
	for _, id := range e.Replicas {
		if _, err := t.hosts[id].process.log.State(e.ID); err == nil {
			out = append(out, id)
		}
	}
	return out
}

// replicated says what an extent lacks: its end, copies, or a replica's knowledge of it.
func (t *trial) replicated(s metadata.SealRecord) error {
	if !s.State.HasEnd() {
		return fmt.Errorf("extent %s is %s", s.Extent.ID, s.State)
	}
	end, sum, some := s.HeldTo()
	if !some { // nothing is left of it
		return nil
	}
	if want := len(s.Extent.Replicas); len(s.Holders) < want {
		return fmt.Errorf("extent %s has %d copies, on %v, instead of %d", s.Extent.ID, len(s.Holders), s.Holders, want)
	}
	for i, id := range s.Holders {
		log := t.hosts[id].process.log
		if i < len(s.HolderDisks) && !s.HolderDisks[i].IsZero() && log.Identity().Disk != s.HolderDisks[i] {
			return fmt.Errorf("extent %s is held by %s on a disk that is gone", s.Extent.ID, id)
		}
		state, err := log.State(s.Extent.ID)
		switch {
		case err != nil:
			return fmt.Errorf("holder %s: %w", id, err)
		case state.Damaged, !state.Sealed, state.L != s.L, state.Last < end, state.Last == end && state.Checksum != sum, state.Last == s.L && state.Checksum != s.Checksum:
			return fmt.Errorf("extent %s ends at %d (%08x), is left up to %d (%08x), and its holder %s has %+v", s.Extent.ID, s.L, s.Checksum, end, sum, id, state)
		}
	}
	return nil
}

// compareAll compares what is settled. Damage that nobody has met so far is met now, and repaired.
func (t *trial) compareAll() {
	seals := t.settle()
	if t.plan.destroy {
		for id, s := range seals {
			for _, store := range s.Holders {
				if _, err := t.readAll(store, id, s.ReadableTo()); err != nil {
					t.say("read extent %s on %s: %.100s", id, store, err)
				}
			}
		}
		sleep(time.Minute)
		seals = t.settle()
	}
	t.compare(seals)
}

// compare reads all copies of all extents: they are the same, byte for byte, and have what publishers and consumers
// were told.
func (t *trial) compare(seals map[core.ExtentID]metadata.SealRecord) {
	crcs := make(map[core.ExtentID][]uint32) // of the payloads, from seq 1
	for id, s := range seals {
		var first []byte
		for i, store := range s.Holders {
			b, err := t.readAll(store, id, s.ReadableTo())
			switch {
			case err != nil:
				t.t.Errorf("read extent %s on %s: %v", id, store, err)
			case i == 0:
				first = b
			case !bytes.Equal(b, first):
				t.t.Errorf("extent %s on %s differs from that on %s", id, store, s.Holders[0])
			}
		}
		var err error
		if crcs[id], err = payloads(first); err != nil {
			t.t.Errorf("extent %s: %v", id, err)
		}
	}
	at := func(r core.Receipt) (uint32, bool) {
		c := crcs[r.Extent]
		if r.Seq < 1 || int(r.Seq) > len(c) {
			return 0, false
		}
		return c[r.Seq-1], true
	}
	for _, p := range t.load.mu.history.Published {
		if r, acked := t.load.mu.receipts[p.Key]; acked {
			if crc, there := at(r); (!there || crc != p.CRC) && !t.load.purged(p.Key) {
				t.t.Errorf("%s was acknowledged as %s, where another message or nothing is", p.Key, r)
			}
		}
	}
	for _, r := range t.load.mu.history.Received {
		if s := seals[r.Receipt.Extent]; s.LostFrom > 0 && r.Receipt.Seq >= s.LostFrom { // read before its disk was lost; nobody was told that it is stored
			continue
		}
		if crc, there := at(r.Receipt); r.Settled != verify.Dead && (!there || crc != r.CRC) && !t.load.purged(r.Key) {
			t.t.Errorf("%s was delivered as %s at %s, where another message or nothing is: it was never committed", r.Key, r.Receipt, r.At.Format("04:05.000"))
		}
	}
}

func (t *trial) readAll(store core.HostID, id core.ExtentID, l core.Seq) ([]byte, error) {
	var out []byte
	for next := core.Seq(1); next <= l; {
		b, err := t.hosts[store].process.log.Read(id, next, l, 1<<20)
		if err != nil {
			return nil, err
		}
		if len(b) == 0 {
			return nil, fmt.Errorf("nothing at seq %d", next)
		}
		out = append(out, b...)
		for len(b) > 0 {
			batch, rest, err := wire.NextBatch(b)
			if err != nil {
				return nil, err
			}
			next, b = batch.Last()+1, rest
		}
	}
	return out, nil
}

// payloads are the checksums of a whole extent's payloads.
func payloads(b []byte) (out []uint32, err error) {
	for len(b) > 0 {
		batch, rest, err := wire.NextBatch(b)
		if err != nil {
			return nil, err
		}
		var r wire.Record
		for records := batch.Records; len(records) > 0; {
			n, err := wire.DecodeRecord(records, &r)
			if err != nil {
				return nil, err
			}
			out = append(out, crc32.Checksum(r.Payload, castagnoli))
			records = records[n:]
		}
		b = rest
	}
	return slices.Clip(out), nil
}
