package membership

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
)

func hosts(ids ...core.HostID) []Host {
	var out []Host
	for _, id := range ids {
		out = append(out, Host{ID: id})
	}
	return out
}

func TestView_GoneForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v View
		why := func(h Host) Departure {
			return map[core.HostID]Departure{"down": Down, "left": Left, "foreign": Foreign}[h.ID]
		}
		v.Replace(hosts("down", "foreign", "left", "self"), time.Now(), why)
		v.Replace(hosts("self"), time.Now(), why)
		left := time.Now()
		time.Sleep(RememberGone - 1)
		got := v.Gone()
		if len(got) != 2 || got[0].ID != "down" || got[0].Left || got[1].ID != "left" || !got[1].Left || !got[0].Since.Equal(left) {
			t.Errorf("within the hour: gone %+v, want down and left, and not the host of another cluster", got)
		}
		time.Sleep(time.Nanosecond)
		if got := v.Gone(); len(got) > 0 {
			t.Errorf("after the hour: gone %+v", got)
		}
		v.Replace(hosts("self"), time.Now(), why)
		if len(v.mu.gone) > 0 {
			t.Errorf("after the hour and a change %d hosts are kept", len(v.mu.gone))
		}
	})
}

func TestView_GoneAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v View
		for i := range maxGone + 10 {
			v.Replace(hosts(core.HostID(fmt.Sprintf("host-%04d", i))), time.Now(), func(Host) Departure { return Down })
			time.Sleep(time.Second)
		}
		got := v.Gone()
		if len(got) != maxGone || got[0].ID != "host-0009" {
			t.Errorf("%d hosts are remembered, the first %s; want the %d that went last", len(got), got[0].ID, maxGone)
		}
	})
}
