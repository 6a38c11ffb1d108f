// Package client is the Go library of Columba: it publishes, consumes, works and administers over one [Client].
//
//	c, err := client.Dial(ctx, "127.0.0.1:4922")
//	defer c.Close()
//
// [Dial] takes several addresses, separated by commas; one of them has to answer.
//
// A [Publisher] sends messages in batches: while one batch is being written, new messages form the next one. It adds no
// delay. A publish that succeeded is durable on all replicas of the queue. A publish that fails with
// [ErrUnknownOutcome] may or may not be stored; the publisher has then tried until its timeout. After every other error
// of Publish the message is not stored.
//
// [Client.Work] runs a handler for each message of a consumer group. If the handler returns nil, Work acks the message.
// If it returns an error, the message is delivered again; after the group's maximum of deliveries it becomes a dead
// letter. A [Consumer] leaves settling to the caller.
//
// [Client.Admin] manages queues and groups. Their settings and the ids are types of package core: core.QueueSpec,
// core.GroupSpec, core.Receipt.
//
// Delivery is at least once, unless the group was made at-most-once: after a lock timeout a message is delivered again,
// with a higher attempt. A settlement belongs to the delivery, not to the connection. If the connection is lost, or its
// host stops, the client sends settlements through another host, until the lock ends and for at least 10 seconds.
//
// The client makes lost connections again, and follows hosts that come and go, without the caller noticing. Each error
// is an [Error] with a code; decide with errors.Is and the sentinels of this package. The class of the code
// (Error.Code.Class) says whether a retry can help. A call whose context has no deadline ends after the client's
// timeout ([WithTimeout], 30 s by default). Work and Deliveries run until their context ends.
package client
