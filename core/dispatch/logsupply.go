package dispatch

import (
	"slices"
	"sort"
	"time"

	"github.com/columbamq/columba/core"
)

// logSupply is the supply of a share that hands its messages out in the order of their seqs.
//
//	frontier < cursor ≤ next (when nothing was acked unread)
//	n == messages at or above the cursor that are not done and have no phase
type logSupply struct {
	share   *Share
	cursor  core.Seq      // no first delivery below
	n       int           // messages
	batches queue[*batch] // with messages at or above the cursor, by rising seq
	opens   int64         // ns: no first delivery before, see look; 0: at once
}

func newLogSupply(s *Share) *logSupply { return &logSupply{share: s, cursor: s.next} }

func (l *logSupply) len() int { return l.n }

func (l *logSupply) ready() bool { return l.n > 0 && l.opens == 0 }

func (l *logSupply) add(b *batch) {
	fresh := l.admit(b)
	l.n += fresh
	if fresh > 0 {
		l.batches.push(b)
	}
}

// admit counts what the batch brings, gives restored messages their bytes, and answers how many messages are new.
func (l *logSupply) admit(b *batch) (fresh int) {
	s := l.share
	if s.done.Top() < b.first && s.top < b.first {
		n := int(b.last-b.first) + 1
		b.left = n
		b.live = int(b.Offsets[len(b.Offsets)-1] - b.Offsets[b.first-b.Base])
		return n
	}
	for seq := b.first; seq <= b.last; seq++ {
		if s.done.Done(seq) {
			continue
		}
		b.left++
		b.live += b.sizeAt(int(seq - b.Base))
		if m := s.table.get(seq); m != nil {
			s.complete(seq, m, b)
		} else {
			fresh++
		}
	}
	return fresh
}

// skip drops batches that the cursor has passed.
func (l *logSupply) skip() {
	for l.batches.len() > 0 && (*l.batches.front()).last < l.cursor {
		l.batches.pop()
	}
}

func (l *logSupply) rest() {
	l.skip()
	l.batches.trim()
}

// choose implements supply, like the methods below: the next run of one batch.
func (l *logSupply) choose(most, bytes int, budget *budget) chosen {
	s := l.share
	l.skip()
	b := *l.batches.front()
	first := max(l.cursor, b.first)
	count := min(int(b.last-first)+1, most, budget.messages)
	if s.rate > 0 {
		count = min(count, s.allowed())
	}
	if s.top >= first || s.done.Top() >= first || b.Expire != nil {
		first, count = l.clean(b, first, count)
	}
	l.cursor = first
	if count == 0 {
		return chosen{}
	}
	i := int(first - b.Base)
	start := b.Offsets[i]
	if size := int(b.Offsets[i+1] - start); size > min(bytes, budget.bytes) {
		if size > budget.bytes && !budget.fits(size) {
			return chosen{}
		}
		count = 1
	} else if total := int(b.Offsets[i+count] - start); total > min(bytes, budget.bytes) {
		fit := uint32(min(bytes, budget.bytes))
		count = sort.Search(count, func(k int) bool { return b.Offsets[i+k+1]-start > fit })
	}
	return chosen{batch: b, first: first, count: count, size: int(b.Offsets[i+count] - start)}
}

// clean finds the first message of a batch at or above first that is here, and up to count in a row of such. Expired
// messages before them are settled.
func (l *logSupply) clean(b *batch, first core.Seq, count int) (core.Seq, int) {
	for ; first <= b.last; first++ {
		if !l.has(first) {
			continue
		}
		if !l.share.expired(b, int(first-b.Base)) {
			break
		}
		l.expire(b, first)
	}
	n := 0
	for ; n < count && first+core.Seq(n) <= b.last && l.has(first+core.Seq(n)) && !l.share.expired(b, int(first-b.Base)+n); n++ {
	}
	return first, n
}

// has reports whether a message at or above the cursor, that was read, is here.
func (l *logSupply) has(seq core.Seq) bool {
	return !l.share.done.Done(seq) && l.share.table.get(seq) == nil
}

// expire ends a message that has expired.
func (l *logSupply) expire(b *batch, seq core.Seq) {
	s := l.share
	if s.group.spec.Expired != core.ExpiredDLQ {
		s.group.counters.Expired += l.settle(b, seq, 1)
		return
	}
	l.n--
	m := s.table.put(seq)
	m.batch = b
	s.expire(seq, m)
}

// settle ends n messages of a batch from seq on, which nobody sees, and answers how many they are.
func (l *logSupply) settle(b *batch, seq core.Seq, n int) uint64 {
	s, i := l.share, int(seq-b.Base)
	l.n -= n
	s.unref(b, n, int(b.Offsets[i+n]-b.Offsets[i]))
	s.change()
	return s.done.AckRange(seq, uint64(n))
}

func (l *logSupply) begin(c chosen, as message) {
	s := l.share
	as.batch = c.batch
	for seq, left := c.first, c.count; left > 0; {
		k := s.table.make(uint64(seq) >> chunkBits)
		at := int(seq & chunkMask)
		n := min(chunkLen-at, left)
		for i := range n {
			k.messages[at+i] = as
		}
		k.live |= (1<<n - 1) << at
		seq, left = seq+core.Seq(n), left-n
	}
	s.table.n += c.count
	s.stand(c.first, &as, c.count)
	l.n -= c.count
	l.cursor = c.first + core.Seq(c.count)
	if s.rate > 0 {
		s.spent(c.count)
	}
}

func (l *logSupply) drop(seq core.Seq) bool {
	b, i := l.find(seq)
	if b == nil {
		return false
	}
	l.n--
	l.share.unref(b, 1, b.sizeAt(i))
	return true
}

func (l *logSupply) find(seq core.Seq) (*batch, int) {
	all := l.batches.all()
	at, _ := slices.BinarySearchFunc(all, seq, func(b *batch, seq core.Seq) int {
		if b.last < seq {
			return -1
		}
		return 1
	})
	if seq < l.cursor || at == len(all) || all[at].first > seq || !l.has(seq) {
		return nil, 0
	}
	return all[at], int(seq - all[at].Base)
}

func (l *logSupply) until(seq core.Seq) int64 {
	opens := l.opens
	if s := l.share; s.group.spec.Delay > 0 && !s.merged {
		b, _ := l.find(seq)
		opens = max(opens, s.visibleAt(b))
	}
	return opens
}

func (l *logSupply) forgot(core.Seq) bool { return false }

func (l *logSupply) oldest() int64 {
	if delayed, _ := l.late(); delayed == l.n {
		return 0
	}
	l.skip()
	return (*l.batches.front()).Enqueued
}

// look settles the oldest messages while the group skips them. Messages behind the oldest wait for it: append
// times never go back within an extent.
func (l *logSupply) look() (alarm int64) {
	s := l.share
	spec := &s.group.spec
	l.opens = s.resumes()
	alarm = l.opens
	for (spec.Delay > 0 || spec.SkipOlder > 0) && l.n > 0 && !s.merged {
		l.skip()
		b := *l.batches.front()
		if at := s.visibleAt(b); at > s.group.now {
			l.opens, alarm = at, at
		}
		if spec.SkipOlder > 0 {
			last := b.Enqueued*1000 + int64(spec.SkipOlder)
			if last < s.group.now {
				l.opens, alarm = 0, 0
				l.skipOver(b)
				continue
			}
			if alarm == 0 || last < alarm {
				alarm = last + 1
			}
		}
		break
	}
	return alarm
}

// skipOver settles the messages of the first batch: nobody is to see them.
func (l *logSupply) skipOver(b *batch) {
	s := l.share
	for seq := max(l.cursor, b.first); seq <= b.last; {
		n := int(b.last-seq) + 1
		if s.top >= seq || s.done.Top() >= seq {
			if seq, n = l.clean(b, seq, n); n == 0 {
				break
			}
		}
		s.group.counters.Skipped += l.settle(b, seq, n)
		seq += core.Seq(n)
	}
	l.cursor = b.last + 1
}

func (l *logSupply) late() (delayed, withheld int) {
	s := l.share
	if s.group.spec.Delay == 0 || l.n == 0 || s.merged {
		return 0, 0
	}
	delayed = l.n
	l.skip()
	for _, b := range l.batches.all() {
		if s.visibleAt(b) > s.group.now {
			break
		}
		delayed -= l.count(b)
	}
	return delayed, 0
}

// count is how many messages of a batch are here.
func (l *logSupply) count(b *batch) (n int) {
	if first := max(l.cursor, b.first); l.share.top < first && l.share.done.Top() < first {
		return int(b.last-first) + 1
	}
	for seq := max(l.cursor, b.first); seq <= b.last; seq++ {
		if l.has(seq) {
			n++
		}
	}
	return n
}

// A share with a rate hands out a tenth of a second's messages at once, at most.
const burstsPerSecond = 10

// leastPause is between two times at which the rate lets messages go, when there are many.
const leastPause = 10 * time.Millisecond

// allowed is how many messages the rate lets go now for the first time.
func (s *Share) allowed() int {
	if s.group.now < s.paced {
		return 0
	}
	return int(min((s.group.now-s.paced)/s.interval()+1, s.burst()))
}

// spent counts n that went.
func (s *Share) spent(n int) {
	s.paced = max(s.paced, s.group.now-(s.burst()-1)*s.interval()) + int64(n)*s.interval()
}

// resumes is when the rate lets the next ones go, ns; 0: now.
func (s *Share) resumes() int64 {
	if s.rate == 0 || s.supply.len() == 0 || s.allowed() > 0 {
		return 0
	}
	together := min(int64(leastPause)/s.interval(), s.burst()-1)
	return s.paced + max(together, 0)*s.interval()
}

func (s *Share) interval() int64 { return max(int64(time.Second)/int64(s.rate), 1) }
func (s *Share) burst() int64    { return max(int64(s.rate)/burstsPerSecond, 1) }
