package cluster

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestDLQ_TakesWhatTheQueueDoes raises the size limit of a queue: messages of the new size can become dead letters.
func TestDLQ_TakesWhatTheQueueDoes(t *testing.T) {
	bubbleOf(t, Options{}, core.QueueSpec{Path: queue, MaxMessage: 16 << 10}, func(w *world) {
		w.group("g", nil)
		_, err := w.Client.Admin().UpdateQueue(w.t.Context(), core.QueueSpec{Path: queue, MaxMessage: 512 << 10}, "max_message")
		w.ok(err)
		sleep(time.Minute)
		w.publish(string(make([]byte, 300<<10)))
		con := w.consumer("g")
		w.ok(w.take(con, time.Minute).Reject("bad"))
		w.eventually("it is a dead letter", time.Minute, func() bool { return w.letters("g") == 1 })
		w.close(con)
	})
}
