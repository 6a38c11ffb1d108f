package tenant

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/quota"
)

// TellSealed is for how long the controller is told of a sealed extent. Several questions may stay without an answer,
// and the controller counts what it is told until it has measured the extent with its end.
const TellSealed = 2 * quota.LeaseFor

// Fill is how far an extent is that is not sealed, or was sealed lately.
type Fill struct {
	Extent core.ExtentID
	Last   core.Seq // committed
	Bytes  uint64   // up to it
}

// Limit is what was exceeded.
type Limit string

const (
	LimitMessages Limit = "messages"
	LimitBytes    Limit = "bytes"
	LimitBacklog  Limit = "backlog"
)

// Over is why messages are refused for now. Why says the same each time, but for its retry-after.
type Over struct {
	Limit Limit
	Why   *core.Error
}

// Gate is where the messages of one queue pass, or are refused. Safe for concurrent use; a look costs a few atomic
// operations and no allocation.
type Gate struct {
	all     *Tenants
	tenant  *tenant
	queue   core.QueueID
	path    string
	fills   func() []Fill
	cap     atomic.Int64 // of the queue's backlog; 0: none
	room    quota.Room   // of the backlog, of the queue and of its namespace
	wanted  atomic.Int64 // bytes, since they were last told
	pending atomic.Int64 // bytes that were taken and not answered
}

// Ask returns how many of the messages, and how many bytes of them, may pass now, and why not all. If any may pass, the
// first message passes, however large. The caller charges the messages that it lets pass.
func (g *Gate) Ask(messages, bytes int, now time.Time) (passMessages, passBytes int, over *Over) {
	limits, cap := g.tenant.limits.Load(), g.cap.Load()
	if limits == nil && cap == 0 {
		return messages, bytes, nil
	}
	if limits == nil {
		limits = &none
	}
	t := g.tenant
	t.wanted.messages.Add(int64(messages))
	t.wanted.bytes.Add(int64(bytes))
	g.wanted.Add(int64(bytes))
	passMessages, passBytes = messages, bytes
	if limits.MessagesPerSecond > 0 {
		if left := t.messages.Left(now); left < messages {
			passMessages, over = left, t.over(LimitMessages, t.messages.Wait(now), limits.MessagesPerSecond)
		}
	}
	if limits.BytesPerSecond > 0 && passMessages > 0 {
		if left := t.bytes.Left(now); left < bytes {
			passBytes, over = left, t.over(LimitBytes, t.bytes.Wait(now), limits.BytesPerSecond)
		}
	}
	if (cap > 0 || limits.BacklogBytes > 0) && passBytes > 0 {
		if left := g.room.Left(); left < passBytes {
			passBytes, over = left, g.full(cap, limits.BacklogBytes)
		}
	}
	if passMessages == 0 || passBytes == 0 {
		return 0, 0, over
	}
	return passMessages, passBytes, over
}

// Charge counts what passes.
func (g *Gate) Charge(messages, bytes int, now time.Time) {
	limits, cap := g.tenant.limits.Load(), g.cap.Load()
	if limits == nil && cap == 0 {
		return
	}
	g.room.Take(bytes)
	if limits == nil {
		return
	}
	if limits.MessagesPerSecond > 0 {
		g.tenant.messages.Take(messages, now)
	}
	if limits.BytesPerSecond > 0 {
		g.tenant.bytes.Take(bytes, now)
	}
}

var none core.NamespaceSpec

// over notes that the tenant is held back by a rate.
func (t *tenant) over(l Limit, wait time.Duration, rate int64) *Over {
	t.wanted.refused.Store(true)
	return &Over{l, &core.Error{
		Code: core.CodeThrottled, RetryAfter: wait,
		Text: fmt.Sprintf("namespace %s publishes more than its %d %s a second; wait, or allow more with: columba update namespace %s", t.name, rate, l, t.name),
	}}
}

// full is that the backlog of the queue, or of its namespace, has no room.
func (g *Gate) full(cap, all int64) *Over {
	what := fmt.Sprintf("queue %s has reached its backlog limit, %d bytes", g.path, cap)
	switch {
	case cap == 0:
		what = fmt.Sprintf("the queues of namespace %s have reached its backlog limit, %d bytes", g.tenant.name, all)
	case all > 0:
		what += fmt.Sprintf(", or the queues of namespace %s have reached theirs, %d bytes", g.tenant.name, all)
	}
	return &Over{LimitBacklog, &core.Error{Code: core.CodeThrottled, RetryAfter: quota.RenewEvery, Text: what + "; consume some, or allow more"}}
}

// Hold counts what was taken of a queue until Settle says that it was answered.
func (g *Gate) Hold(bytes int64)   { g.pending.Add(bytes) }
func (g *Gate) Settle(bytes int64) { g.pending.Add(-bytes) }

// SetCap takes over the queue's cap; 0 is none.
func (g *Gate) SetCap(cap int64) {
	limited := g.backlogged()
	if before := g.cap.Swap(cap); before == cap || cap == 0 {
		return
	}
	if !limited {
		g.room.Set(g.all.alone(cap), g.room.Mark())
	}
	g.all.again()
}

// Close ends the gate's use.
func (g *Gate) Close() { g.all.close(g) }

// backlogged: its room counts.
func (g *Gate) backlogged() bool {
	limits := g.tenant.limits.Load()
	return g.fills != nil && (g.cap.Load() > 0 || limits != nil && limits.BacklogBytes > 0)
}

// least is the lower of its limits.
func (g *Gate) least() int64 {
	cap := g.cap.Load()
	if limits := g.tenant.limits.Load(); limits != nil && limits.BacklogBytes > 0 && (cap == 0 || limits.BacklogBytes < cap) {
		cap = limits.BacklogBytes
	}
	return cap
}
