package client

import (
	"slices"
	"time"
)

// turnTime is how long a host may be asked for messages that it does not have while another could be asked.
const turnTime = 100 * time.Millisecond

// recallTimeout is how long a host may take to answer a recall while nothing at all is heard from it. Then the consumer
// gives its stream up, and the credit is free. Hosts answer a recall at once; one that takes so long stands still.
const recallTimeout = 3 * time.Second

// budget is the number of messages that a consumer with a limit may still ask its hosts for. If one host does not send
// its part, the consumer takes that credit back and asks another host. So all hosts together are never asked for more
// than the limit. A host whose stream has ended counts as asked for nothing. Pure; its owner is the inbox, under its
// mutex.
//
//	left + asked and held of all accounts + yielded = the limit
type budget struct {
	left     int // may be asked for
	missing  int // not yielded yet
	accounts []*account
}

// account is the part of the budget that one stream has.
type account struct {
	stream     *consumeStream
	most       int       // asked and held
	asked      int       // of the host, and not arrived
	held       int       // in the inbox
	recalling  bool      // the host was told to give back what it was asked for, and has not answered
	recalledAt time.Time // when it was told last
	stopped    bool      // not to be asked for now
	gone       bool      // its stream has ended: it goes with the last message that is held
	fed        bool      // something arrived since it was asked last
	since      time.Time // when it was asked last, or something arrived
}

// ask is a request to the host of a stream: to send messages more, or with 0 to give back the rest of its credit.
type ask struct {
	stream   *consumeStream
	messages int
}

// hungry reports whether the host could be asked for more, and is asked for nothing.
func (a *account) hungry() bool {
	return !a.stopped && !a.recalling && a.asked == 0 && a.held < a.most
}

// open reports whether so few messages are asked for and held that asking for more is worth a frame.
func (a *account) open() bool {
	return !a.stopped && !a.recalling && a.asked+a.held <= a.most/2
}

func newBudget(limit int) *budget { return &budget{left: limit, missing: limit} }

func (b *budget) join(s *consumeStream, most int) *account {
	a := &account{stream: s, most: most}
	b.accounts = append(b.accounts, a)
	return a
}

// leave frees what the stream was asked for. The messages that it has sent are still yielded or returned.
func (b *budget) leave(a *account) {
	b.left += a.asked
	a.asked, a.recalling, a.stopped, a.gone = 0, false, true, true
	b.dropEmpty(a)
}

func (b *budget) dropEmpty(a *account) {
	if a.gone && a.held == 0 {
		b.accounts = slices.DeleteFunc(b.accounts, func(o *account) bool { return o == a })
	}
}

func (b *budget) arrived(a *account, n int, now time.Time) {
	expected := min(n, a.asked)
	a.asked, a.held = a.asked-expected, a.held+n
	b.left -= n - expected // a host that sends what it was not asked for
	a.fed, a.since = true, now
}

// yielded counts one message; due: the stream is to be asked for more.
func (b *budget) yielded(a *account) (due bool) {
	b.missing--
	if a == nil { // of a host that was asked for nothing
		b.left--
		return false
	}
	a.held--
	b.dropEmpty(a)
	return b.left > 0 && a.open()
}

// returned frees the messages that are given back from the inbox.
func (b *budget) returned(a *account, n int) {
	a.held -= n
	b.left += n
	b.dropEmpty(a)
}

// carried counts the messages held from an ended stream of the same host.
func (b *budget) carried(a *account, n int) {
	a.held += n
	b.left -= n
}

// recalled applies the answer of a host.
func (b *budget) recalled(a *account, n int) {
	if a.gone { // an answer on a stream that ended meanwhile
		return
	}
	n = min(n, a.asked)
	a.asked, a.recalling = a.asked-n, false
	b.left += n
}

// plan divides the rest of the budget. Each host without a request is asked for one message, the longest waiting first.
// The rest goes to the hosts that sent everything they were asked for, or to all if there are none.
func (b *budget) plan(now time.Time) []ask {
	var asks []ask
	var open, fed []*account
	for _, a := range b.accounts {
		if a.stopped {
			asks = b.recall(a, asks, now)
		} else if a.open() {
			open = append(open, a)
		}
	}
	if b.left <= 0 || len(open) == 0 {
		return asks
	}
	slices.SortStableFunc(open, func(x, y *account) int { return x.since.Compare(y.since) })
	before := make([]int, len(open))
	for i, a := range open {
		before[i] = a.asked
		if a.fed {
			fed = append(fed, a)
		}
		if a.asked == 0 && b.left > 0 {
			a.asked, b.left = 1, b.left-1
		}
	}
	if len(fed) == 0 {
		fed = open
	}
	for i, a := range fed {
		others := len(fed) - i
		n := min((b.left+others-1)/others, a.most-a.asked-a.held)
		a.asked, b.left = a.asked+n, b.left-n
	}
	for i, a := range open {
		if n := a.asked - before[i]; n > 0 {
			a.fed, a.since = false, now
			asks = append(asks, ask{a.stream, n})
		}
	}
	return asks
}

// turn takes credit back from hosts that have sent nothing for a while, if no budget is left for a host that might
// send.
func (b *budget) turn(now time.Time) (asks []ask) {
	if b.left > 0 || !slices.ContainsFunc(b.accounts, (*account).hungry) {
		return nil
	}
	for _, a := range b.accounts {
		if now.Sub(a.since) >= turnTime {
			asks = b.recall(a, asks, now)
		}
	}
	return asks
}

func (b *budget) recall(a *account, asks []ask, now time.Time) []ask {
	if a.asked == 0 || a.recalling {
		return asks
	}
	a.recalling, a.recalledAt = true, now
	return append(asks, ask{stream: a.stream})
}

// unanswered are the streams whose hosts have not answered a recall for recallTimeout.
func (b *budget) unanswered(now time.Time) (streams []*consumeStream) {
	for _, a := range b.accounts {
		if a.recalling && now.Sub(a.recalledAt) >= recallTimeout {
			streams = append(streams, a.stream)
		}
	}
	return streams
}
