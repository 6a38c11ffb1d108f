package cluster

import (
	"testing"
)

func TestCluster_PublishAckDeliverAck(t *testing.T) {
	bubble(t, Options{Stores: 3}, func(w *world) {
		w.group("a", nil)
		w.group("b", nil)
		bodies := numbers(1, 2000)
		w.publish(bodies...)
		for _, g := range []string{"a", "b"} {
			con := w.consumer(g)
			w.all(w.collect(con, len(bodies)), bodies, true)
			w.close(con)
		}
	})
}
