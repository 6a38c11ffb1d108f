package cluster

import (
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// TestCluster_SeekToATimeKeepsWhatIsNotDue sends a group an hour back, to have what came since once more. A message
// that was published before that time and is not due yet was never delivered: it still comes when it is due.
func TestCluster_SeekToATimeKeepsWhatIsNotDue(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		p := w.publisher()
		_, err := p.Publish(w.t.Context(), client.Message{Body: []byte("later"), Delay: 20 * time.Minute})
		w.ok(err)
		sleep(10 * time.Minute)
		between := time.Now()
		sleep(time.Second)
		w.publish("a")
		w.ok(w.next(con, "a", 1).Ack())
		w.seek("g", core.Start{Mode: core.StartTime, At: between})
		w.ok(w.next(con, "a", 1).Ack())
		d := w.take(con, 20*time.Minute)
		if d == nil {
			t.Error("the message that was not due yet is lost to the group")
		}
		w.ok(p.Close(w.t.Context()))
		w.close(con)
	})
}
