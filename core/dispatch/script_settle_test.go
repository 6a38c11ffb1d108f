package dispatch_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
)

// take prints the runs that a session is handed: share, seqs, attempt.
func (s *script) take(a args) string {
	var b strings.Builder
	credit := dispatch.Credit{Messages: a.number("messages", 100), Bytes: a.number("bytes", 1<<20)}
	if a.has("oversize") {
		credit.Largest = dispatch.AnySize
	}
	for _, r := range s.group.Take(a.session(0), credit, s.now, nil) {
		lines("%s %s attempt %d", &b, s.name(r.Share), span(r.Base, r.Count), r.Attempt)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func span(first core.Seq, count uint32) string {
	if count == 1 {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d-%d", first, first+core.Seq(count)-1)
}

func refusals(bad []dispatch.Refusal) string {
	var b strings.Builder
	for _, r := range bad {
		lines("%s refused: %s", &b, span(r.Base, r.Count), r.Code)
	}
	return b.String()
}

func (s *script) ack(a args) string {
	first, count := a.run(1)
	return refusals(s.share(a).rules.Ack(first, count, a.attempt(), s.now, nil))
}

func (s *script) giveBack(a args) string {
	first, count := a.run(1)
	by, _ := s.share(a).rules.Holder(first)
	return refusals(s.share(a).rules.Return(by, first, count, a.attempt(), s.now, nil))
}

// nack without a delay takes the group's backoff.
func (s *script) nack(a args) string {
	first, count := a.run(1)
	var b strings.Builder
	for i := range core.Seq(count) {
		if v := a.text("metadata", ""); v != "" {
			if err := s.share(a).rules.Replace(first+i, a.attempt(), []byte(v), s.now); err != nil {
				lines("%d refused: %s", &b, first+i, core.CodeOf(err))
				continue
			}
		}
		if err := s.share(a).rules.Nack(first+i, a.attempt(), a.duration("delay", -1), []byte(a.text("reason", "")), 0.5, s.now); err != nil {
			lines("%d refused: %s", &b, first+i, core.CodeOf(err))
		}
	}
	return b.String()
}

func (s *script) reject(a args) string {
	first, _ := a.run(1)
	return outcome(s.share(a).rules.Reject(first, a.attempt(), []byte(a.text("reason", "")), s.now))
}

func (s *script) extend(a args) string {
	first, _ := a.run(1)
	return outcome(s.share(a).rules.Extend(first, a.attempt(), a.duration("by", time.Minute), s.now))
}

// takeDead prints the messages that are to be appended to the dead letter queue.
func (s *script) takeDead(a args) string {
	var b strings.Builder
	for _, d := range s.group.TakeTransfers(dispatch.DeadLetterQueue, a.number("most", 100), nil) {
		lines("%s %d attempts %d %s%s%s", &b, s.name(d.Share), d.Seq, d.Attempts, d.Failure, quoted(d.Text), again(d.Again))
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func again(yes bool) string {
	if yes {
		return " look first"
	}
	return ""
}

func quoted(text string) string {
	if text == "" {
		return ""
	}
	return " \"" + text + "\""
}

func (s *script) deadLettered(a args) string {
	first, count := a.run(1)
	for i := range core.Seq(count) {
		s.share(a).rules.Transferred(first+i, s.now)
	}
	return ""
}

func (s *script) deadFailed(a args) string {
	first, _ := a.run(1)
	s.share(a).rules.TransferFailed(first, a.has("unknown"), s.now.Add(a.duration("retry", time.Second)), s.now)
	return ""
}

// takeRetryQueueing prints the messages that are to be appended to the retry queue.
func (s *script) takeRetryQueueing(a args) string {
	var b strings.Builder
	for _, p := range s.group.TakeTransfers(dispatch.RetryQueue, a.number("most", 100), nil) {
		lines("%s %d attempts %d %s due %s%s%s", &b, s.name(p.Share), p.Seq, p.Attempts, p.Failure, ago(p.Due), quoted(p.Text), again(p.Again))
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func (s *script) retryQueued(a args) string {
	first, count := a.run(1)
	for i := range core.Seq(count) {
		s.share(a).rules.Transferred(first+i, s.now)
	}
	return ""
}

func (s *script) retryQueueFailed(a args) string {
	first, _ := a.run(1)
	s.share(a).rules.TransferFailed(first, a.has("unknown"), s.now.Add(a.duration("retry", time.Second)), s.now)
	return ""
}

// show prints where the messages of a share stand, those alike and in a row as one.
func (s *script) show(a args) string {
	sh := s.share(a)
	var b strings.Builder
	first, count, before := core.Seq(1), uint32(0), ""
	for seq := core.Seq(1); seq <= core.Seq(len(sh.records))+1; seq++ {
		now := ""
		if seq <= core.Seq(len(sh.records)) {
			now = standing(sh.rules.Standing(seq))
		}
		if count > 0 && now != before {
			lines("%s %s", &b, span(first, count), before)
			count = 0
		}
		if count == 0 {
			first, before = seq, now
		}
		count++
	}
	return b.String()
}

func standing(st dispatch.Standing) string {
	out := string(st.Place)
	if st.Attempts > 0 {
		out += fmt.Sprintf(" attempts %d", st.Attempts)
	}
	if st.Failure != dispatch.NoFailure {
		out += " " + st.Failure.String()
	}
	out += quoted(st.Text)
	if !st.Until.IsZero() {
		out += " until " + ago(st.Until)
	}
	return out
}

func (s *script) depth(args) string {
	d := s.group.Depth()
	var b strings.Builder
	lines("ready %d, in flight %d, delayed %d, retry queueing %d, dead lettering %d, blocked %d", &b, d.Ready, d.InFlight, d.Delayed, d.RetryQueueing, d.DeadLettering, d.Blocked)
	return b.String()
}

func (s *script) counters(args) string {
	c := s.group.Counters()
	var b strings.Builder
	lines("delivered %d, redelivered %d, acked %d, nacked %d, lock timeouts %d, rejected %d, returned %d", &b, c.Delivered, c.Redelivered, c.Acked, c.Nacked, c.LockTimeouts, c.Rejected, c.Returned)
	lines("dead %d, retry queued %d, dropped %d, skipped %d, expired %d, not counted %d, opened %d", &b, c.Dead, c.RetryQueued, c.Dropped, c.Skipped, c.Expired, c.NotCounted, c.Opened)
	return b.String()
}

func (s *script) breaker(args) string {
	if state, since := s.group.Breaker(); state != dispatch.BreakerClosed {
		return string(state) + " since " + ago(since) + "\n"
	}
	return string(dispatch.BreakerClosed) + "\n"
}

// elsewhere tells of the newest opening of the group's breaker on another host: opening=0 is that none lasts.
func (s *script) elsewhere(a args) string {
	s.group.Elsewhere(uint64(a.number("opening", 0)), s.now)
	return ""
}
