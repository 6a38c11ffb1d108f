package controller

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// calmly is readings that may pass over a full one now, with what others answered.
func calmly(now time.Time) (*readings, answered) {
	r := newReadings(10*time.Minute, 4)
	r.hasReadAll(now.Add(-time.Minute), now.Add(-59*time.Second), 0, nil)
	return r, answered{same: now.Add(-10 * time.Minute), all: true}
}

// TestReadings_Calm: a full reading is passed over only if nothing can be missed.
func TestReadings_Calm(t *testing.T) {
	now := time.Now()
	for name, x := range map[string]struct {
		edit func(r *readings, a *answered)
		want bool
	}{
		"nothing happens":                                      {func(*readings, *answered) {}, true},
		"the controllers are the same for less":                {func(_ *readings, a *answered) { a.same = now.Add(-10*time.Minute + 1) }, false},
		"one has not answered":                                 {func(_ *readings, a *answered) { a.all = false }, false},
		"one has forgotten changes":                            {func(_ *readings, a *answered) { a.missed = true }, false},
		"it became responsible":                                {func(r *readings, _ *answered) { r.asked = true }, false},
		"no full reading yet":                                  {func(r *readings, _ *answered) { r.full = time.Time{} }, false},
		"the last full reading failed":                         {func(r *readings, _ *answered) { r.hasReadAll(now, now, 0, core.Errorf(core.CodeUnavailable, "x")) }, false},
		"the last full reading is ten minutes old":             {func(r *readings, _ *answered) { r.full = now.Add(-reloadEvery) }, false},
		"named extents could not be read":                      {func(r *readings, _ *answered) { r.hasReadNamed(now, core.Errorf(core.CodeUnavailable, "x")) }, false},
		"named extents were read":                              {func(r *readings, _ *answered) { r.hasReadNamed(now, nil) }, true},
		"what was missed may come after the last full reading": {func(r *readings, _ *answered) { r.missed = r.full.Add(-namedFor + 1) }, false},
		"what was missed was there at the last full reading":   {func(r *readings, _ *answered) { r.missed = r.full.Add(-namedFor) }, true},
		"some are named": {func(_ *readings, a *answered) {
			a.changed = []changed{{id: numbered(1)}, {id: numbered(2)}, {id: numbered(3)}, {id: numbered(4)}}
		}, true},
		"more are named than are read again": {func(_ *readings, a *answered) {
			a.changed = []changed{{id: numbered(1)}, {id: numbered(2)}, {id: numbered(3)}, {id: numbered(4)}, {id: numbered(5)}}
		}, false},
	} {
		r, a := calmly(now)
		x.edit(r, &a)
		r.take(a, now)
		if got := r.calm(a, false, now); got != x.want {
			t.Errorf("%s: calm is %t, want %t", name, got, x.want)
		}
	}
}

// TestReadings_NamedExtentsAreReadAgain: for two minutes after they were named last. A reading that failed does not
// count.
func TestReadings_NamedExtentsAreReadAgain(t *testing.T) {
	now, queue := time.Now(), core.QueueID{ID: core.ID{1}}
	r, a := calmly(now)
	a.changed = []changed{{id: numbered(2), queue: queue}, {id: numbered(1)}}
	r.take(a, now)
	r.hasReadNamed(now, nil)
	later := now.Add(time.Minute)
	r.take(answered{changed: []changed{{id: numbered(2)}}}, later)
	r.hasReadNamed(later, nil)
	if got := r.ids(); len(got) != 2 || got[0] != numbered(1) || r.named[numbered(2)].queue != queue {
		t.Errorf("after a minute: %v, %+v", got, r.named)
	}
	later = now.Add(namedFor)
	r.hasReadNamed(later, core.Errorf(core.CodeUnavailable, "x"))
	if got := r.ids(); len(got) != 2 {
		t.Errorf("after a reading that failed: %v", got)
	}
	r.hasReadNamed(later, nil)
	if got := r.ids(); len(got) != 1 || got[0] != numbered(2) {
		t.Errorf("after two minutes: %v", got)
	}
	r.hasReadAll(later.Add(time.Minute), later.Add(time.Minute), 0, nil)
	if got := r.ids(); len(got) != 0 {
		t.Errorf("after a full reading: %v", got)
	}
}

// TestReadings_TakeAPartOfTheTime: a full reading that takes long is followed by a pause of four times as long, ten
// minutes at most, and one that fails by one as long. One that is asked for waits for nothing, but a while after one
// that failed: it is asked for again and again then, by each call that needs it.
func TestReadings_TakeAPartOfTheTime(t *testing.T) {
	now := time.Now()
	refused := core.Errorf(core.CodeUnavailable, "x")
	for _, x := range []struct {
		took, rest, again time.Duration
		err               error
	}{
		{5 * time.Second, 0, 0, nil},
		{10 * time.Second, 40 * time.Second, 0, nil},
		{2 * time.Minute, 8 * time.Minute, 0, nil},
		{4 * time.Minute, 10 * time.Minute, 0, nil},
		{time.Millisecond, 0, loadAgain, refused},
		{10 * time.Second, 0, 10 * time.Second, refused},
		{5 * time.Minute, 5 * time.Minute, reloadOften, refused},
	} {
		r := newReadings(time.Minute, 4)
		ended := now.Add(x.took)
		r.hasReadAll(now, ended, 0, x.err)
		if x.rest > 0 && r.mayReadAll(ended.Add(x.rest-1)) || !r.mayReadAll(ended.Add(x.rest)) {
			t.Errorf("after %s, %v: rests until %s after", x.took, x.err, r.rests.Sub(ended))
		}
		if r.asked = true; !r.mayReadAll(ended.Add(x.again)) || x.again > 0 && r.mayReadAll(ended.Add(x.again-1)) {
			t.Errorf("after %s, %v: one that is asked for waits until %s after", x.took, x.err, r.again.Sub(ended))
		}
	}
}

// TestReadings_OfWhatIsNew: ten minutes after the last reading that would have found it. One that finds something has
// all rows read soon.
func TestReadings_OfWhatIsNew(t *testing.T) {
	at := time.Now()
	r, a := calmly(at)
	r.every, r.since, at = reloadSeldom, r.full, r.full
	for range 3 {
		if at = at.Add(reloadEvery - 2*reloadOften); r.newIsDue(at) {
			t.Errorf("%s after the last reading the next one is due", at.Sub(r.fresh))
		}
		if at = at.Add(2 * reloadOften); !r.newIsDue(at) || !r.calm(a, true, at) {
			t.Errorf("%s after the last reading: due %t, calm %t", at.Sub(r.fresh), r.newIsDue(at), r.calm(a, true, at))
		}
		r.hasReadNew(at, 0, nil)
	}
	if r.hasReadNew(at.Add(reloadEvery), 0, core.Errorf(core.CodeUnavailable, "x")); !r.newIsDue(at.Add(reloadEvery)) {
		t.Error("a reading that failed is not tried again")
	}
	if r.hasReadNew(at, 1, nil); r.calm(a, true, at) {
		t.Error("it is calm after something was found")
	}
}

// TestReadings_BecomeSeldom: full readings that find nothing, and only as fast as time passes.
func TestReadings_BecomeSeldom(t *testing.T) {
	refused := core.Errorf(core.CodeUnavailable, "x")
	r, at := newReadings(time.Minute, 4), time.Now()
	for i, x := range []struct {
		pause time.Duration // since the one before
		found int
		asked bool
		err   error
		every time.Duration // afterwards
	}{
		{0, 0, false, nil, 10 * time.Minute},
		{30 * time.Second, 0, false, nil, 10 * time.Minute},
		{9*time.Minute + 30*time.Second, 0, false, nil, 20 * time.Minute},
		{10 * time.Minute, 0, false, nil, 20 * time.Minute},
		{10 * time.Minute, 0, false, nil, 40 * time.Minute},
		{40 * time.Minute, 0, false, nil, 40 * time.Minute},
		{40 * time.Minute, 1, false, nil, 10 * time.Minute},
		{10 * time.Minute, 0, false, nil, 20 * time.Minute},
		{20 * time.Minute, 0, true, nil, 10 * time.Minute},
		{10 * time.Minute, 0, false, nil, 20 * time.Minute},
		{20 * time.Minute, 0, false, refused, 10 * time.Minute},
	} {
		at, r.asked = at.Add(x.pause), x.asked
		if r.hasReadAll(at, at, x.found, x.err); r.every != x.every {
			t.Errorf("%d: the next one is due after %s, want %s", i, r.every, x.every)
		}
	}
}

// TestOthers_SameSince: since a controller came or went, and since a run that is not shown held a session lease.
func TestOthers_SameSince(t *testing.T) {
	began := time.Now()
	c, at := newOthers(began), began
	runs := func(n ...byte) map[core.RunID]core.HostID {
		out := make(map[core.RunID]core.HostID)
		for _, b := range n {
			out[core.RunID{ID: core.ID{b}}] = "ctl"
		}
		return out
	}
	for i, x := range []struct {
		members map[core.RunID]core.HostID
		leases  []core.RunID
		same    bool
	}{
		{runs(1, 2), nil, false},
		{runs(1, 2), []core.RunID{{ID: core.ID{2}}}, true},
		{runs(1, 3), []core.RunID{{ID: core.ID{3}}}, false},
		{runs(1, 3), []core.RunID{{ID: core.ID{3}}}, true},
		{runs(1, 3), []core.RunID{{ID: core.ID{2}}}, false},
		{runs(1, 3), []core.RunID{{ID: core.ID{2}}}, false},
		{runs(1, 3), nil, true},
		{runs(1), nil, false},
		{runs(), nil, false},
		{nil, nil, true},
	} {
		before := c.since()
		at = at.Add(time.Second)
		c.see(x.members, x.leases, at)
		if same := c.since().Equal(before); same != x.same || !same && !c.since().Equal(at) {
			t.Errorf("%d: the same since %s, before %s", i, c.since(), before)
		}
	}
}
