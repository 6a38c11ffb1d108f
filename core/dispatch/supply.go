package dispatch

import "github.com/columbamq/columba/core"

// A supply has the messages of a share that were read and never handed out. They have no phase, and no place in the
// share's table: mostly there are many of them, and all that is kept of one is where its record is. A message is chosen
// first, and then taken out: it is handed out, or claimed. See logSupply and dueSupply for the order in which messages
// are chosen.
type supply interface {
	// add takes the messages of a batch in that are new to the share, and gives restored messages their bytes.
	add(b *batch)
	// len is how many messages there are.
	len() int
	// ready reports whether a message is old enough, and not too old, to be chosen.
	ready() bool
	// late is how many messages are not: by the group's delay, or because it is decided whether they are cancelled.
	late() (delayed, withheld int)
	// oldest is since when the first of the others could be handed out, unix µs; 0: there are none.
	oldest() int64
	// look applies the rules of age to the messages, and answers when it has to be done again, ns; 0: no need.
	look() int64

	// choose names the messages to be handed out next: up to most in a row of one batch, while their bytes are within
	// the turn's and the budget's. The count is 0 when there is none, or when some were settled instead: choose again.
	choose(most, bytes int, b *budget) chosen
	// begin takes out what was chosen. Each message has its entry in the table from now on: as, in the phase that it
	// names.
	begin(c chosen, as message)
	// drop takes a message out that is settled, and reports whether it was here.
	drop(seq core.Seq) bool

	// find is where the record of a message is; no batch: it is not here.
	find(seq core.Seq) (b *batch, i int)
	// until is when a message may be handed out that was found, ns; 0: now.
	until(seq core.Seq) int64
	// forgot reports whether a message that was found waits for nothing: a defect.
	forgot(seq core.Seq) bool
	// rest gives the memory of busier times back.
	rest()
}

// chosen names messages that are to be handed out next, or claimed: count in a row of a batch, size bytes in all.
type chosen struct {
	batch *batch
	first core.Seq
	count int
	size  int
	retry bool // it has an entry in the table, with the attempts so far
}

// budget is what may be handed out yet.
type budget struct {
	messages int
	bytes    int
	oversize bool // one message may be larger than bytes, as the only one
	stopped  bool // the next message was larger than the bytes left
}

// fits reports whether a message of size may be handed out next.
func (b *budget) fits(size int) bool {
	if size <= b.bytes {
		return true
	}
	if b.oversize {
		b.bytes = size // the only one: nothing is left after it
		return true
	}
	b.stopped = true
	return false
}

func (b *budget) spend(messages, bytes int) {
	b.messages -= messages
	b.bytes -= bytes
	b.oversize = false
}
