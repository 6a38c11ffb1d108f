// Package verify owns the history checker of the fault tests: it compares the answers to publishers with the messages
// that every group received.
package verify

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/columbamq/columba/core"
)

// Outcome is what a publisher was told about a message.
type Outcome string

const (
	Acked   Outcome = "acked"   // it is stored, and every group has to get it
	Failed  Outcome = "failed"  // it is not stored, and no group may get it
	Unknown Outcome = "unknown" // either
)

// Key names a message by its publisher's count.
type Key struct {
	Queue     string `json:"queue"`
	Publisher string `json:"publisher"`
	Seq       uint64 `json:"seq"`
}

func (k Key) String() string { return fmt.Sprintf("%s %s/%d", k.Queue, k.Publisher, k.Seq) }

// Published is a line of a publisher's ledger.
type Published struct {
	Key
	CRC     uint32    `json:"crc"` // of the payload
	Outcome Outcome   `json:"outcome"`
	At      time.Time `json:"at"` // of the outcome
}

// Settled is what a consumer did with a delivery.
type Settled string

const (
	Done        Settled = "done"         // acknowledged: it should not come again
	Back        Settled = "back"         // nacked: it has to come again, or die
	RetryQueued Settled = "retry_queued" // nacked for so long that it is stored anew: it has to come again from there, or die
	Late        Settled = "late"         // acknowledged, perhaps too late or on a connection that was lost: it may come again
	Stale       Settled = "stale"        // Late, and seen nobody knows how long after it was handed out, as by a consumer that stood still
	Dropped     Settled = "dropped"      // not settled: its lock ends, and it comes again
	Dead        Settled = "dead"         // found in the dead letter queue
)

// Received is a delivery as the application saw it, or a dead letter.
type Received struct {
	Key
	Group    string       `json:"group"`
	Consumer string       `json:"consumer"`
	CRC      uint32       `json:"crc"`
	Receipt  core.Receipt `json:"receipt"` // where it is stored; of a dead letter: its origin
	Attempt  int          `json:"attempt"`
	Settled  Settled      `json:"settled"`
	At       time.Time    `json:"at"`
}

// Crash is a time in which something was down or out of reach: a duplicate across it is to be expected.
type Crash struct {
	What string    `json:"what"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Split says that it was cut off or stood still instead, and went on: for a moment two hosts may have handed out the
	// same messages, each with a count of its own.
	Split bool `json:"split,omitempty"`
}

// Left is what a group still had after the drain, by the server's own count.
type Left struct {
	Queue  string `json:"queue"`
	Group  string `json:"group"`
	Undone uint64 `json:"undone"` // ready, in flight, delayed (also in the retry queue)
	Dead   uint64 `json:"dead"`
}

// History is one run: the ledgers of its publishers and what became of their messages. Deliveries are in the order in
// which they were seen. Every group of a run is in Groups, so that one that received nothing is not forgotten.
type History struct {
	Groups    []Left
	Published []Published
	Received  []Received
	Crashes   []Crash
	Chains    []Chain // of CP queues
}

// line is one line of a history in JSON; one field is set.
type line struct {
	Group     *Left      `json:"group,omitempty"`
	Published *Published `json:"published,omitempty"`
	Received  *Received  `json:"received,omitempty"`
	Crash     *Crash     `json:"crash,omitempty"`
	Chain     *Chain     `json:"chain,omitempty"`
}

// Write writes a history, one JSON object per line.
func (h *History) Write(to io.Writer) error {
	out := bufio.NewWriter(to)
	enc := json.NewEncoder(out)
	var lines []line
	for i := range h.Groups {
		lines = append(lines, line{Group: &h.Groups[i]})
	}
	for i := range h.Published {
		lines = append(lines, line{Published: &h.Published[i]})
	}
	for i := range h.Received {
		lines = append(lines, line{Received: &h.Received[i]})
	}
	for i := range h.Crashes {
		lines = append(lines, line{Crash: &h.Crashes[i]})
	}
	for i := range h.Chains {
		lines = append(lines, line{Chain: &h.Chains[i]})
	}
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return fmt.Errorf("write history: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	return nil
}

// Read adds the lines of from to the history; the parts of a run may be in several files. A line that ends in the
// middle, as of a process that was killed, is an error: its writer's ledger is not whole.
func (h *History) Read(from io.Reader) error {
	dec := json.NewDecoder(from)
	dec.DisallowUnknownFields()
	for n := 1; ; n++ {
		var l line
		switch err := dec.Decode(&l); {
		case err == io.EOF:
			return nil
		case err != nil:
			return core.Errorf(core.CodeCorrupt, "history, entry %d: %w", n, err)
		}
		switch {
		case l.Group != nil:
			h.Groups = append(h.Groups, *l.Group)
		case l.Published != nil:
			h.Published = append(h.Published, *l.Published)
		case l.Received != nil:
			h.Received = append(h.Received, *l.Received)
		case l.Crash != nil:
			h.Crashes = append(h.Crashes, *l.Crash)
		case l.Chain != nil:
			h.Chains = append(h.Chains, *l.Chain)
		default:
			return core.Errorf(core.CodeCorrupt, "history, entry %d says nothing", n)
		}
	}
}
