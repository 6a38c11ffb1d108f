package client

import (
	"cmp"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlab_Locked has a host tell a change of the lock timeout around a delivery: which of the two it was locked for is
// not known near the notice.
func TestSlab_Locked(t *testing.T) {
	const near, far = 9 * time.Second, 11 * time.Second
	for name, x := range map[string]struct {
		told        []time.Duration // one after the other
		apart       time.Duration   // 0: a minute
		after       time.Duration   // of the delivery, after the last notice
		least, most time.Duration
	}{
		"no change":           {told: []time.Duration{time.Minute}, least: time.Minute, most: time.Minute},
		"told again":          {told: []time.Duration{time.Minute, time.Minute}, least: time.Minute, most: time.Minute},
		"long before raise":   {told: []time.Duration{time.Minute, time.Hour}, after: -far, least: time.Minute, most: time.Minute},
		"just before raise":   {told: []time.Duration{time.Minute, time.Hour}, after: -near, least: time.Minute, most: time.Hour},
		"just after raise":    {told: []time.Duration{time.Minute, time.Hour}, after: near, least: time.Minute, most: time.Hour},
		"long after raise":    {told: []time.Duration{time.Minute, time.Hour}, after: far, least: time.Hour, most: time.Hour},
		"just before lower":   {told: []time.Duration{time.Hour, time.Minute}, after: -near, least: time.Minute, most: time.Hour},
		"long after lower":    {told: []time.Duration{time.Hour, time.Minute}, after: far, least: time.Minute, most: time.Minute},
		"two changes":         {told: []time.Duration{time.Second, time.Hour, time.Minute}, after: near, least: time.Minute, most: time.Hour},
		"two changes at once": {told: []time.Duration{time.Second, time.Hour, time.Minute}, apart: near, after: near, least: time.Second, most: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			con := &Consumer{epoch: time.Now()}
			s := &consumeStream{con: con}
			at := con.epoch.Add(time.Hour)
			tell := func(timeout time.Duration) { s.terms.Store(s.terms.Load().told(timeout, con.at(at))) }
			var slabs [2]*slab // received before the last notice, and after it
			for i, timeout := range x.told {
				if i > 0 {
					at = at.Add(cmp.Or(x.apart, time.Minute))
				}
				if t := s.terms.Load(); t != nil {
					slabs[0] = &slab{stream: s, received: at.Add(x.after), timeout: t.timeout}
				}
				tell(timeout)
				slabs[1] = &slab{stream: s, received: at.Add(x.after), timeout: timeout}
			}
			got := slabs[1]
			if x.after < 0 {
				got = slabs[0]
			}
			if least, most := got.locked(); least != x.least || most != x.most {
				t.Errorf("locked for %s to %s, want %s to %s", least, most, x.least, x.most)
			}
		})
	}
}

// TestLock_ConfirmedBehind has every answer come after the next extension was sent: each one proves the extension that
// it is of.
func TestLock_ConfirmedBehind(t *testing.T) {
	for _, behind := range []int{1, 3, maxPending, 3 * maxPending} {
		t.Run(strconv.Itoa(behind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const lock, every = 60 * time.Second, time.Second
				con := &Consumer{epoch: time.Now()}
				s := &consumeStream{con: con, out: &outbox{}}
				d := &Delivery{slab: &slab{stream: s, received: time.Now(), timeout: lock}}
				var asked []int64
				for range 200 {
					asked = append(asked, con.now())
					d.extending(lock)
					if n := len(asked) - behind; n > 0 {
						s.out.confirmed.Store(asked[n-1])
					}
					time.Sleep(every)
					if until, sure := d.lockEnds(); sure <= con.now() || until != asked[len(asked)-1]+int64(lock) {
						t.Fatalf("at %s the lock ends at %s, for sure at %s", time.Duration(con.now()), time.Duration(until), time.Duration(sure))
					}
				}
				d.notExtended()
				s.out.confirmed.Store(con.now())
				if _, sure := d.lockEnds(); sure == asked[len(asked)-1]+int64(lock) {
					t.Error("an extension that was refused counts as granted")
				}
			})
		})
	}
}
