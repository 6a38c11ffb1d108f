// Package client is the Go library of Columba: it publishes, consumes, works and administers over one [Client].
//
//	c, err := client.Dial(ctx, "127.0.0.1:4922")
//	defer c.Close()
//
// [Dial] takes several addresses with commas between; one of them has to answer.
//
// A [Publisher] batches by itself: what gathers while a write is under way travels together. A publish that succeeded
// is durable on all replicas of the queue. One that fails with [ErrUnknownOutcome] may or may not be stored; the
// publisher has then tried for as long as it was allowed to.
//
// [Client.Work] runs a handler for each message of a consumer group: nil acknowledges, an error gives the message back,
// and after the group's maximum of deliveries it becomes a dead letter. A [Consumer] leaves settling to the caller.
// Delivery is at least once: after an expired lock a message comes again, with a higher attempt. A settlement belongs
// to the delivery, not to the connection: when that is lost, or its host stops, the client settles and extends through
// another host, until the lock has ended.
//
// Lost connections are made again, and hosts that come and go are followed, without the caller noticing. Errors are of
// one catalogue ([Error]); decide with errors.Is. Nothing hangs: what has no deadline of its own takes the client's
// ([WithTimeout]).
package client
