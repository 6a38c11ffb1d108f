package clienttest

import (
	"testing"
	"time"
)

// diskLook is after how long the store has looked at its disk again: it does once a second.
const diskLook = 1100 * time.Millisecond

// Disconnect breaks every connection of clients. They connect again by themselves. Publishers send
// unanswered messages again, under the same ids. Delivered messages stay locked: they can be settled and extended.
func (b *Broker) Disconnect() { b.net.reset(func(*conn) bool { return true }) }

// LoseRequests drops all that clients send, until heal. The broker gets no publishes and no acks; what it sends
// arrives. heal breaks the connections, which then are made again.
func (b *Broker) LoseRequests() (heal func()) { return b.net.lose(requests) }

// LoseAnswers drops all that the broker sends, until heal. The broker stores published messages, and their
// publishers do not learn it. A publisher whose time ends before heal gets [client.ErrUnknownOutcome]; after heal
// it sends the message again. heal breaks the connections, which then are made again.
func (b *Broker) LoseAnswers() (heal func()) { return b.net.lose(answers) }

// RefusePublishes makes the broker store nothing more until accept, as if its disk were full. Publishers try until the
// timeout of their messages, and then get [client.ErrUnavailable]. Consuming goes on; dead letters wait. The call takes
// a second.
func (b *Broker) RefusePublishes() (accept func()) {
	b.disk.Fill(true)
	b.Advance(diskLook)
	return func() {
		b.disk.Fill(false)
		b.Advance(diskLook)
	}
}

// Redeliver delivers the messages that consumers of a group hold again. It drops all that clients send until the
// group's lock timeout has passed, so that they settle and extend nothing. This also affects publishes, and deliveries
// of other groups.
func (b *Broker) Redeliver(t testing.TB, queue, group string) {
	t.Helper()
	g, err := b.client.Admin().GetGroup(t.Context(), queue, group)
	if err != nil {
		t.Fatalf("redeliver to group %s of %s: %v", group, queue, err)
	}
	heal := b.LoseRequests()
	b.Advance(g.Spec.LockTimeout + time.Second)
	heal()
}

// Crash kills the broker as kill -9 does, and starts it again. Acknowledged messages are kept. The broker may
// forget acks and first attempts of about the last second, and delivers those messages again. A publish under way
// is sent again, or gets [client.ErrUnknownOutcome].
func (b *Broker) Crash(t testing.TB) {
	t.Helper()
	old := b.process
	old.meta.shut.Store(true)
	b.net.down()
	b.disk.Crash()
	b.process = nil
	b.tasks.Go(old.kill)
	if err := b.start(); err != nil {
		t.Fatalf("start the broker again: %v", err)
	}
}
