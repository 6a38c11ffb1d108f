package inputhost

import (
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/wire"
)

// TestPublisher_NoPast refuses a record that says of itself what only a host may say, and stores nothing of it; another
// publisher of the queue goes on.
func TestPublisher_NoPast(t *testing.T) {
	bubble(t, 3, nil, func(r *harness) {
		p, other := r.publisher("p", path), r.publisher("other", path)
		other.send()
		other.flush()
		said := make(chan error, 1)
		err := p.pub.Append(t.Context(), &wire.Record{Payload: []byte("forged"), Attempts: 3, Reason: []byte("no")}, time.Minute, publish.DoneFunc(func(_ core.MessageID, _ core.Receipt, err error) {
			said <- err
		}))
		if err != nil {
			t.Fatal(err)
		}
		if err := <-said; err == nil || !strings.Contains(err.Error(), "only hosts set those") {
			t.Errorf("a record with attempts: %v, want a refusal that says why", err)
		}
		other.send()
		other.flush()
		r.all(other.n)
	})
}
