// Package measure owns the common parts of all load clients: their jobs, counts and times.
package measure

import "time"

// Job is what a load client does. The kind says which fields are used.
type Job struct {
	Kind    string        // what to do, of those the client knows
	Addr    string        // of the server; of several: comma separated
	Queue   string        // or subject
	Group   string        // consume
	Size    int           // payload of a message, bytes
	Warm    time.Duration // not counted
	For     time.Duration // counted
	Count   int64         // consume, drain, hold, park, timers: end after this many
	Records int           // log: of a batch
	Depth   int           // log: batches without an answer
	Dir     string        // log: a directory that is not there yet
	Profile string        // file for the client's CPU profile; empty: none

	Producers int // produce, timers: each with a connection of its own
	InFlight  int // produce: messages of each without an answer, at most
	Rate      int // steady, flow, failing: messages a second, of all queues; failing: 0 for as fast as it goes
	Queues    int // steady: more than one are named Queue-0, Queue-1 …
	Consumers int // drain, hold, park, flow, timers: of one group, each with a connection of its own
	Prefetch  int // drain, hold, park, rest, flow, timers, failing: messages that each consumer may hold

	Bad    int           // failing: percent of the messages that are bad
	AckBad bool          // failing: the bad ones are acked; else they are nacked at every delivery
	Wait   time.Duration // failing: the backoff of the group
}

// Outcome is what a load client measured.
type Outcome struct {
	Messages int64
	Seconds  float64
	Errors   int64
	P50, P99 float64 // ms; of sampled messages
	CPU      float64 // seconds of the whole client, user and system
	Total    int64   // messages of the whole client, the warm-up's too
	Gap      float64 // seconds; the longest without an acknowledgement of a sampled message, after the warm-up

	Deliver50, Deliver99 float64 // ms; flow: from when a message was due until a consumer had it; failing: the same of retries, sampled
	Delivered            int64   // how many of those were measured

	LastQuarter float64 // messages a second in the last quarter of the time
}

// PerSecond is the rate of messages.
func (o Outcome) PerSecond() float64 { return float64(o.Messages) / o.Seconds }
