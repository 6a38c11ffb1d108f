package cluster

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// TestCluster_StartAtATimeCountsFromThePublish starts a group at a time in the past: it gets what a group got that was
// made then, that is what was published from then on, for at once or for later, due since or not; and not what had been
// published before for a time behind it.
func TestCluster_StartAtATimeCountsFromThePublish(t *testing.T) {
	bubble(t, Options{Stores: 2, Outputs: 2}, func(w *world) {
		p := w.publisher()
		say := func(body string, delay time.Duration) {
			w.t.Helper()
			_, err := p.Publish(w.t.Context(), client.Message{Body: []byte(body), Delay: delay})
			w.ok(err)
		}
		latest := func(g *core.GroupSpec) { g.Start = core.Start{Mode: core.StartLatest} }
		say("before, due between", time.Minute)
		say("before, due later", 3*time.Minute)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		from := time.Now()
		w.group("then", latest)
		time.Sleep(time.Second)
		say("since, due between", time.Minute)
		say("since, due later", 3*time.Minute)
		say("since", 0)
		w.ok(p.Close(w.t.Context()))
		time.Sleep(130 * time.Second)
		w.group("now", func(g *core.GroupSpec) { g.Start = core.Start{Mode: core.StartTime, At: from} })
		for _, name := range []string{"then", "now"} {
			con := w.consumer(name)
			var got []string
			for body := range w.collect(con, 2) {
				got = append(got, body)
			}
			if slices.Sort(got); !slices.Equal(got, []string{"since", "since, due between"}) {
				w.t.Errorf("group %s got %q first", name, got)
			}
			w.close(con)
		}
		time.Sleep(2 * time.Minute)
		for _, name := range []string{"then", "now"} {
			con := w.consumer(name)
			if got := w.collect(con, 1); len(got) != 1 || got["since, due later"] != 1 {
				w.t.Errorf("group %s got %v then", name, got)
			}
			w.close(con)
		}
	})
}
