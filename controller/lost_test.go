package controller

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

// cut leaves a store the first n records of an extent.
func (s *fakeStore) cut(e core.Extent, n int) {
	s.edit(e.ID, func(x *fakeReplica) { x.batches = x.batches[:n] })
}

// given checks what was given up of an extent of five records.
func (r *harness) given(row metadata.SealRecord, from core.Seq) {
	r.t.Helper()
	gone, err := row.Gone()
	r.ok(err)
	if row.LostFrom != from || row.L != 5 || row.RemovedCount != uint64(6-from) || from > 1 && gone.Done(from-1) || !gone.Done(from) || !gone.Done(5) {
		r.t.Errorf("row %+v, want that what begins at %d is given up", row, from)
	}
}

// TestLost_NothingAcknowledged: the disk of the only holder is lost, and what others lack nobody was told to be stored.
// Readers go on without it.
func TestLost_NothingAcknowledged(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e, others := r.sealedAloneOf(5, 3)
		others[0].cut(e, 4)
		others[1].cut(e, 3)
		r.wake(others[0])
		r.sleep(2 * time.Minute)
		if row := r.row(e); row.LostFrom != 0 {
			t.Fatalf("given up while a replica is away: %+v", row)
		}
		r.wake(others[1])
		r.eventually("what is lost is given up", time.Minute, func() bool { return r.row(e).LostFrom > 0 })
		r.given(r.row(e), 5)
		r.sleep(time.Minute)
		if got, err := r.seal(e, 3); err != nil || got.L != 5 || len(got.Holders) != 0 {
			t.Errorf("its writer gets %v, %v; want that nobody has it", got, err)
		}
		if lost, below := r.lost(), r.value(r.ctl.metrics.below); lost != 0 || below != 0 {
			t.Errorf("reported: %v lost, %v below the minimum", lost, below)
		}
		r.allLeft(e, 3, time.Minute)
		if a, b := others[0].has(e.ID), others[1].has(e.ID); a.last() != 4 || b.last() != 4 {
			t.Errorf("what is left was changed: %+v, %+v", a, b)
		}
		// A store that comes back with all of it is too late: readers have gone on without it.
		others[1].edit(e.ID, func(x *fakeReplica) {
			for x.last() < 5 {
				x.batches = append(x.batches, batch(x.last()+1, string('1'+rune(x.last())), x.sum()))
			}
		})
		r.ctl.repairs.Want(e.ID)
		r.sleep(time.Minute)
		r.given(r.row(e), 5)
		if b := others[1].has(e.ID); b == nil || b.last() != 5 {
			t.Errorf("what it has was changed: %+v", b)
		}
	})
}

// TestLost_Acknowledged: what was, or may have been, acknowledged is given up by an operator's word only.
func TestLost_Acknowledged(t *testing.T) {
	for name, lose := range map[string]func(r *harness) core.Extent{
		"by its writer": func(r *harness) core.Extent {
			e, others := r.sealedAloneOf(5, 4)
			for _, s := range others {
				s.cut(e, 3)
				r.wake(s)
			}
			return e
		},
		"known to a replica": func(r *harness) core.Extent {
			e, others := r.sealedAloneOf(5, 0)
			for _, s := range others {
				s.edit(e.ID, func(x *fakeReplica) { x.batches, x.committed = x.batches[:3], 4 })
				r.wake(s)
			}
			return e
		},
		"known to the only replica, which lost it": func(r *harness) core.Extent {
			e, others := r.sealedAloneOf(5, 0)
			others[0].edit(e.ID, func(x *fakeReplica) { x.batches, x.committed = x.batches[:2], 3 })
			r.wake(others[0])
			r.wake(others[1])
			r.kill(others[1].id)
			batches := others[1].has(e.ID).batches[:3]
			others[1].wipe()
			others[1].with(func() { others[1].replicas[e.ID] = &fakeReplica{tuple: e, fenced: true, batches: batches} })
			r.restart(others[1])
			return e
		},
		"the only replica is part of a copy": func(r *harness) core.Extent {
			e, others := r.sealedAloneOf(5, 0)
			others[0].edit(e.ID, func(x *fakeReplica) { x.batches, x.opened = x.batches[:3], false })
			r.wake(others[0])
			r.wake(others[1])
			r.kill(others[1].id)
			others[1].wipe()
			r.restart(others[1])
			return e
		},
		"no replica is left": func(r *harness) core.Extent {
			e, others := r.sealedAloneOf(5, 0)
			for _, s := range others {
				r.wake(s)
				r.kill(s.id)
				s.wipe()
				r.restart(s)
			}
			return e
		},
		"by its end": func(r *harness) core.Extent {
			e := r.extent(r.queue(3, 2), 5)
			a, b, short := r.replicas(e)[0], r.replicas(e)[1], r.replicas(e)[2]
			short.cut(e, 3)
			r.hang(short)
			got, err := r.seal(e, 3)
			r.ok(err)
			if len(got.Holders) != 2 {
				r.t.Fatalf("holders %v", got.Holders)
			}
			for _, s := range []*fakeStore{a, b} {
				r.kill(s.id)
				s.wipe()
				r.restart(s)
			}
			r.wake(short)
			return e
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3, edit: seldom}, func(r *harness) {
				e := lose(r)
				r.eventually("it is reported", 2*time.Minute, func() bool { return r.value(r.ctl.metrics.lost) == 1 })
				r.sleep(5 * time.Minute)
				if row := r.row(e); row.LostFrom != 0 {
					t.Fatalf("given up without an operator's word: %+v", row)
				}
				from := core.Seq(4)
				if name == "no replica is left" {
					from = 1
				}
				for range 2 { // the first answer may be lost
					_, err := r.ctl.Host.seal(r.t.Context(), order{extent: e, reason: "operator", force: true})
					r.ok(err)
				}
				row := r.row(e)
				r.given(row, from)
				if purged := row.Home.Kind == core.HomePurged; purged != (from == 1) {
					t.Errorf("home %s", row.Home)
				}
				if lost := r.lost(); lost != 0 {
					t.Errorf("still reported as lost: %v", lost)
				}
			})
		})
	}
}

// TestLost_ForceIsRefused while somebody has, or may have, all of it.
func TestLost_ForceIsRefused(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 5)
		_, err := r.seal(e, 5)
		r.ok(err)
		force := func() error {
			_, err := r.ctl.Host.seal(r.t.Context(), order{extent: e, reason: "operator", force: true})
			return err
		}
		r.eventually("all copies are there", time.Minute, func() bool { return len(r.row(e).Holders) == 3 })
		if err := force(); core.CodeOf(err) != core.CodeConflict {
			t.Errorf("nothing is lost: %v", err)
		}
		for _, s := range r.replicas(e)[:2] {
			r.kill(s.id)
			s.wipe()
			r.restart(s)
		}
		r.kill(r.replicas(e)[2].id)
		r.sleep(5 * time.Second)
		if err := force(); core.CodeOf(err) != core.CodeConflict {
			t.Errorf("the third may come back: %v", err)
		}
		if row := r.row(e); row.LostFrom != 0 {
			t.Errorf("row %+v", row)
		}
	})
}

// TestLost_WhatIsLeftIsReadable: replicas that are left are told the end. Without it they show readers no more than
// they know as committed.
func TestLost_WhatIsLeftIsReadable(t *testing.T) {
	for name, acknowledged := range map[string]core.Seq{"given up": 3, "kept": 5} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3, edit: seldom}, func(r *harness) {
				e := r.extent(r.queue(3, 2), 5)
				holder, others := r.replicas(e)[0], r.replicas(e)[1:]
				for _, s := range others {
					r.kill(s.id)
				}
				_, err := r.seal(e, acknowledged)
				r.ok(err)
				r.sleep(time.Minute) // the holder was told, and those who were to tell the others have given up
				r.kill(holder.id)
				holder.wipe()
				r.restart(holder)
				for _, s := range others {
					s.cut(e, 4)
					r.restart(s)
				}
				r.sleep(3 * time.Minute)
				if lost := r.row(e).LostFrom; (lost > 0) != (acknowledged == 3) {
					t.Fatalf("lost from %d", lost)
				}
				for _, s := range others {
					if x := s.has(e.ID); !x.sealed || x.l != 5 || x.last() != 4 {
						t.Errorf("store %s shows readers up to %d of %d: %+v", s.id, x.committed, x.last(), x)
					}
				}
			})
		})
	}
}

// TestLost_ForceSeesTheNewestHolders: another controller has added a holder, which is away.
func TestLost_ForceSeesTheNewestHolders(t *testing.T) {
	bubble(t, harnessOptions{stores: 4}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 5)
		other := r.others(e)[0]
		r.kill(other.id)
		r.sleep(5 * time.Second)
		_, err := r.seal(e, 5)
		r.ok(err)
		r.eventually("all copies are there", time.Minute, func() bool { return len(r.row(e).Holders) == 3 })
		_, err = metadata.Change(r.t.Context(), r.meta, metadata.Seals, metadata.SealKey(e.ID), func(s *metadata.SealRecord) error {
			s.SetPlaces(append(s.Places(), core.Place{Store: other.id, Disk: other.disk}))
			s.Version++
			return nil
		})
		r.ok(err)
		for _, s := range r.replicas(e) {
			s.edit(e.ID, func(x *fakeReplica) { x.batches = x.batches[:3] })
		}
		_, err = r.ctl.Host.seal(r.t.Context(), order{extent: e, reason: "operator", force: true})
		if core.CodeOf(err) != core.CodeConflict || r.row(e).LostFrom != 0 {
			t.Errorf("%v, row %+v; store %s may come back with all of it", err, r.row(e), other.id)
		}
	})
}

// TestLost_PartOfACopy: a store that is no replica has more than they, of a copy that was under way. Readers do not ask
// it, so it is copied to one of them.
func TestLost_PartOfACopy(t *testing.T) {
	for name, left := range map[string]int{"replicas are shorter": 3, "no replica is left": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 4}, func(r *harness) {
				e, others := r.sealedAloneOf(5, 3)
				stranger := r.others(e)[0]
				batches := others[0].has(e.ID).batches[:4]
				stranger.with(func() { stranger.replicas[e.ID] = &fakeReplica{tuple: e, fenced: true, batches: batches} })
				for _, s := range others {
					s.cut(e, left)
					if left == 0 {
						s.wipe()
					}
					r.wake(s)
				}
				if left == 0 {
					r.eventually("it is reported", 2*time.Minute, func() bool { return r.value(r.ctl.metrics.lost) == 1 })
					_, err := r.ctl.Host.seal(r.t.Context(), order{extent: e, reason: "operator", force: true})
					r.ok(err)
				}
				r.eventually("what is lost is given up", 2*time.Minute, func() bool { return r.row(e).LostFrom > 0 })
				row, readable := r.row(e), core.Seq(0)
				for _, id := range e.Replicas {
					if x := r.store(id).has(e.ID); x != nil && x.sealed && x.l == 5 {
						readable = max(readable, x.last())
					}
				}
				if readable != 4 || row.LostFrom != 5 {
					t.Errorf("lost from %d, readers get up to %d", row.LostFrom, readable)
				}
			})
		})
	}
}

// givenUpInPart makes an extent that is given up in part: it ends at 5, its only holder has lost it, and the others
// have it up to 4.
func (r *harness) givenUpInPart() (core.Extent, []*fakeStore) {
	r.t.Helper()
	e, others := r.sealedAloneOf(5, 3)
	for _, s := range others {
		s.cut(e, 4)
		r.wake(s)
	}
	r.eventually("what is lost is given up", 2*time.Minute, func() bool { return r.row(e).LostFrom > 0 })
	return e, others
}

// TestLost_GivenUpIsQuiet: what is lost of an extent that was given up is not reported again and again. A replica that
// does not know the end, though readers need it, is told.
func TestLost_GivenUpIsQuiet(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: seldom}, func(r *harness) {
		e, others := r.givenUpInPart()
		r.sleep(time.Minute)
		wiped := r.replicas(e)[0]
		before := wiped.count("GetReplica")
		others[0].edit(e.ID, func(x *fakeReplica) { x.sealed, x.l = false, 0 })
		r.sleep(5 * time.Minute)
		if after := wiped.count("GetReplica"); after != before {
			t.Errorf("the store that lost it is asked %d times", after-before)
		}
		if x := others[0].has(e.ID); !x.sealed || x.l != 5 {
			t.Errorf("%+v", x)
		}
	})
}

func (s *fakeStore) Seek(_ context.Context, req *connect.Request[pb.SeekRequest]) (*connect.Response[pb.SeekResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.replicas[core.ExtentID{ID: core.ID(req.Msg.Extent)}]
	if x == nil {
		return nil, convert.RPCError(core.Errorf(core.CodeNotFound, "no such extent"))
	}
	for i, text := range x.batches {
		if b, err := wire.DecodeBatch(text); err == nil && b.AppendTime >= req.Msg.Time.AsTime().UnixMicro() {
			return connect.NewResponse(&pb.SeekResponse{Seq: uint64(i + 1), Last: uint64(x.last())}), nil
		}
	}
	return connect.NewResponse(&pb.SeekResponse{Seq: uint64(x.last() + 1), Last: uint64(x.last())}), nil
}

// TestLost_StartAtATime: where a group begins in an extent that was given up is asked of those who have what is left.
func TestLost_StartAtATime(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e, others := r.sealedAloneOf(5, 3)
		others[0].cut(e, 4)
		others[1].cut(e, 3)
		for _, s := range others {
			r.wake(s)
		}
		r.eventually("what is lost is given up", 2*time.Minute, func() bool { return r.row(e).LostFrom > 0 })
		known, _ := r.ctl.extents.Get(e.ID)
		g := metadata.GroupRecord{Spec: core.GroupSpec{Start: core.Start{Mode: core.StartTime, At: time.Now()}}}
		if before, err := r.ctl.before(r.t.Context(), g, known); err != nil || before != 4 {
			t.Errorf("it begins behind %d, %v; want 4, all that is left is older", before, err)
		}
	})
}

// TestLost_GivenUpByAnother: readers hear of it from a controller that finds it in the row.
func TestLost_GivenUpByAnother(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, outputs: 1}, func(r *harness) {
		e, others := r.sealedAloneOf(5, 3)
		r.group(e.Queue, "g")
		for _, s := range others {
			s.cut(e, 4)
		}
		out := r.outputs[0]
		r.eventually("the group reads it", time.Minute, func() bool { return out.shares()[e.ID] != nil })
		_, err := metadata.Change(r.t.Context(), r.meta, metadata.Seals, metadata.SealKey(e.ID), func(s *metadata.SealRecord) error { return s.GiveUp(5, sumOf(others[0].has(e.ID).batches), time.Now()) })
		r.ok(err)
		for _, s := range others {
			r.wake(s)
		}
		r.eventually("its owner hears of it", 5*time.Minute, func() bool { a := out.shares()[e.ID]; return a == nil || a.Removed == 1 })
	})
}
