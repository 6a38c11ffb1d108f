package inputhost

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestHost_TimersOfAQueueThatTakesMessagesAgain: a queue takes no messages for a while, its publisher goes, and it
// takes messages again when another comes. The router of its timers was there all the time, for an extent that could
// not be sealed.
func TestHost_TimersOfAQueueThatTakesMessagesAgain(t *testing.T) {
	bubble(t, 3, nil, func(r *harness) {
		p := r.publisher("p", path)
		p.sendFor(time.Minute, time.Time{})
		p.flush()
		id := r.host.list()[0].id
		timers := r.host.mu.queues[queueKey{id, core.HorizonHour}]
		timers.mu.Lock()
		timers.mu.entering++ // as good as an extent without an end
		timers.mu.Unlock()
		r.set(id, core.StatusReceiveOnly)
		take(3 * time.Second)
		if err := p.pub.Close(r.t.Context()); err != nil {
			t.Fatal(err)
		}
		take(3 * time.Second)
		r.set(id, core.StatusEnabled)
		take(3 * time.Second)
		q := r.publisher("q", path)
		body := q.sendFor(time.Minute, time.Time{})
		q.flush()
		r.where(body)
		timers.left()
	})
}
