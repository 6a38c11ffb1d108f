package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/columbamq/columba/bench/measure"
	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// failingSlices is how many slices of time each rate of the section is measured: 21 s by default. A backoff up to
// awaited is waited for before that, so that messages come again all the time.
const (
	failingSlices = 7
	awaited       = 30 * time.Second
)

// failingParts are the messages that are bad, percent of all.
var failingParts = []int{5, 20, 95}

// failingBackoffs are how long a bad message waits for its next attempt. The longest is more than the 30 s from which
// on messages go to the retry queue.
var failingBackoffs = []time.Duration{0, time.Second, 20 * time.Second, 5 * time.Minute}

// fewDeliveries is a limit of deliveries with which the retries fit into their turns, one delivery in five, whatever
// waits: a fifth of the messages fails, and each comes again once.
const (
	fewDeliveries = 2
	fewPercent    = 20
)

// leastAcked is how much of the good messages' rate must be left at half of the load while others fail, unless nearly
// all do. mostSaved is how many bytes of checkpoints an output host may write a second. mostLate is how late 99 % of
// the retries may come, and mostWanted how many deliveries for each message published there may be for that: at half of
// the load there is room for twice as many as messages.
const (
	leastAcked = 0.75
	mostSaved  = 1_000_000
	mostLate   = time.Second
	mostWanted = 2
)

// cell is what one server did with one share of bad messages and one backoff. Rates are of good messages acked, a
// second.
type cell struct {
	BadPercent     int
	BackoffSeconds float64 // below 0: the bad ones are acked like the others
	Deliveries     int     // of a message, at most
	Wanted         float64 // deliveries for each message published, had no retry to wait for another
	Published      int     // messages a second; 0: as fast as it goes
	Acked          float64
	Ratio          float64 // to the rate at which good ones are acked when the bad ones are acked, too
	LastQuarter    float64 // the same rate as Acked, in the last quarter of the time
	Gap            float64 // seconds; the longest without an acked good message
	P99            float64 // ms, from the publish of a good message to its ack
	Late99         float64 // ms, from the end of a retry's backoff to its delivery
	Retries        int64   // of which that is known
	MemoryMiB      float64 // of the server, resident, at most
	Checkpoints    float64 // of shares, written a second
	Saved          float64 // bytes of them, written a second
	RetryQueued    float64 // messages
	DeadLettered   float64 // messages
}

// failing has a part of the messages fail at every delivery, and compares how fast the others are acked with how fast
// they are acked when none fails: at half of the rate at which a server publishes and consumes at the same time.
func (r *rig) failing() error {
	most, err := r.mostAcked()
	if err != nil {
		return err
	}
	var saved, memory float64
	for _, bad := range failingParts {
		half := max(1, int(most/2))
		plain, err := r.failingCell(fmt.Sprint("failing-acked", bad), cell{BadPercent: bad, BackoffSeconds: -1, Published: half})
		if err != nil {
			return err
		}
		r.report.Cells = append(r.report.Cells, plain)
		r.report.say("%d%% bad, which are acked: %s", bad, plain.note())
		for _, deliveries := range failingDeliveries(bad) {
			for _, backoff := range failingBackoffs {
				c, err := r.failingCell(fmt.Sprintf("failing%d-%d-%s", bad, deliveries, backoff), cell{BadPercent: bad, BackoffSeconds: backoff.Seconds(), Deliveries: deliveries, Published: half})
				if err != nil {
					return err
				}
				c.Ratio = c.Acked / plain.Acked
				r.reportCell(c)
				saved, memory = max(saved, c.Saved), max(memory, c.MemoryMiB)
			}
		}
	}
	r.report.info("the server's memory, in the cell with the most", memory, "MiB", "")
	r.report.atMost("checkpoints, in the cell with the most", saved/1e3, mostSaved/1e3, "kB/s")
	return nil
}

// failingDeliveries are the limits of deliveries that a share of bad messages is measured with: the default, and one
// with which the retries fit into their turns.
func failingDeliveries(bad int) []int {
	if bad == fewPercent {
		return []int{defaultDeliveries, fewDeliveries}
	}
	return []int{defaultDeliveries}
}

// defaultDeliveries is the limit of a group that names none.
var defaultDeliveries = core.GroupSpec{}.WithDefaults().MaxDeliveries

// wanted is how many deliveries there would be for each message published, after a time.
func (c cell) wanted(after time.Duration) float64 {
	again := max(0, c.Deliveries-1)
	if wait := time.Duration(c.BackoffSeconds * 1e9); wait > 0 {
		again = min(again, int(after/wait))
	}
	return 1 + float64(c.BadPercent*again)/100
}

// failingFull is failing as fast as it goes. It reports only.
func (r *rig) failingFull() error {
	most, err := r.mostAcked()
	if err != nil {
		return err
	}
	for _, bad := range failingParts {
		for _, backoff := range failingBackoffs {
			c, err := r.failingCell(fmt.Sprintf("failing-full%d-%s", bad, backoff), cell{BadPercent: bad, BackoffSeconds: backoff.Seconds(), Deliveries: defaultDeliveries})
			if err != nil {
				return err
			}
			c.Ratio = c.Acked / (most * float64(100-bad) / 100)
			r.reportCell(c)
		}
	}
	return nil
}

// mostAcked is how many messages a second a server publishes and consumes at the same time, none of them bad. It is
// measured once.
func (r *rig) mostAcked() (float64, error) {
	if r.acked == 0 {
		most, err := r.failingCell("failing-most", cell{BackoffSeconds: -1})
		if err != nil {
			return 0, err
		}
		r.acked = most.Acked
		r.report.info("published and consumed at the same time, 1 KiB", r.acked, "msg/s", "no message is bad; half of it is half of the load")
	}
	return r.acked, nil
}

// reportCell judges the rate of good messages at half of the load, and how late their retries come if there is room for
// them. At full load it only reports, and when nearly all messages are bad: then the breaker and the nack throttle stop
// the consumer for most of the time.
func (r *rig) reportCell(c cell) {
	r.report.Cells = append(r.report.Cells, c)
	name := fmt.Sprintf("%d%% bad, backoff %s, %s", c.BadPercent, time.Duration(c.BackoffSeconds*1e9), c.load())
	if c.Deliveries != defaultDeliveries {
		name += fmt.Sprintf(", %d deliveries", c.Deliveries)
	}
	l := line{Name: name, Value: c.Ratio, Unit: "×", Note: c.note()}
	judged := c.Published > 0 && c.BadPercent <= 50
	if judged {
		l.Bound, l.Verdict = "≥ "+number(leastAcked), verdictOf(c.Ratio >= leastAcked)
	}
	r.report.add(l)
	if c.Retries == 0 {
		return
	}
	l = line{Name: name + ": retries are late", Value: c.Late99, Unit: "ms", Note: fmt.Sprintf("p99; %.2f deliveries are wanted for each message", c.Wanted)}
	if judged && c.Wanted <= mostWanted {
		l.Bound, l.Verdict = "≤ "+number(float64(mostLate.Milliseconds())), verdictOf(c.Late99 <= float64(mostLate.Milliseconds()))
	}
	r.report.add(l)
}

func (c cell) load() string {
	if c.Published > 0 {
		return "half of the load"
	}
	return "full load"
}

func (c cell) note() string {
	return fmt.Sprintf("%.0f good ones acked a second, %.0f in the last quarter, none for %.1f s; p99 %.1f ms; %d retries, late p99 %.0f ms; server ≤ %.0f MiB; %.1f checkpoints and %.0f kB of them a second; %.0f retry queued, %.0f dead letters",
		c.Acked, c.LastQuarter, c.Gap, c.P99, c.Retries, c.Late99, c.MemoryMiB, c.Checkpoints, c.Saved/1e3, c.RetryQueued, c.DeadLettered)
}

// failingCell measures one cell on a new server.
func (r *rig) failingCell(name string, c cell) (cell, error) {
	if err := r.fillPageCache(); err != nil {
		return c, err
	}
	s, err := r.server(name)
	if err != nil {
		return c, err
	}
	defer s.remove()
	if err := r.createQueue(s); err != nil {
		return c, err
	}
	spec := core.GroupSpec{Queue: queuePath, Name: groupName, Start: core.Start{Mode: core.StartEarliest}}
	lasts := failingSlices * r.slice
	if wait := time.Duration(c.BackoffSeconds * 1e9); wait > 0 {
		spec.Backoff = core.Backoff{Min: wait, Factor: 1, Max: wait}
		if wait <= awaited {
			lasts += wait
		}
	}
	spec.MaxDeliveries = c.Deliveries
	c.Wanted = c.wanted(lasts)
	if err := r.admin(s, func(ctx context.Context, a admin) error {
		_, err := a.CreateGroup(ctx, spec)
		return err
	}); err != nil {
		return c, err
	}
	began := time.Now()
	o, err := r.worker(measure.Job{
		Kind: "failing", Addr: s.addr, Queue: queuePath, Group: groupName, Size: messageSize, Warm: warm, For: lasts,
		Rate: c.Published, Prefetch: prefetch, Bad: c.BadPercent, AckBad: c.BackoffSeconds < 0,
		Wait: time.Duration(max(0, c.BackoffSeconds) * 1e9),
	})
	if err != nil {
		return c, err
	}
	m, err := s.metrics(r.ctx)
	if err != nil {
		return c, err
	}
	bytes, err := s.mostMemory()
	c.Acked, c.LastQuarter, c.Gap, c.P99, c.MemoryMiB = o.PerSecond(), o.LastQuarter, o.Gap, o.P99, bytes/(1<<20)
	c.Late99, c.Retries = o.Deliver99, o.Delivered
	seconds := time.Since(began).Seconds() // checkpoints are written until the end of the client
	c.Checkpoints, c.Saved = m["columba_outputhost_checkpoints_total"]/seconds, m["columba_outputhost_checkpoint_bytes_total"]/seconds
	c.RetryQueued, c.DeadLettered = m["columba_outputhost_messages_retry_queued_total"], m["columba_outputhost_messages_dead_lettered_total"]
	return c, err
}

// badMark is where a message says whether it is bad, behind its stamp.
const badMark = 8

// The values of that byte.
const (
	markGood = iota
	markBad
	markSample // bad, and its retries are timed
)

// oneSample is among how many bad messages one has its retries timed.
const oneSample = 16

// handleFailing publishes, at a rate or as fast as it goes, while one consumer acks the good messages, and nacks the
// bad ones at every delivery or acks them, too. It counts the good messages, times each from its publish to its ack,
// and times some of the retries from the end of their backoff to their delivery.
func handleFailing(j measure.Job) (measure.Outcome, error) {
	c, pub, err := publisher(context.Background(), j)
	if err != nil {
		return measure.Outcome{}, err
	}
	defer c.Close()
	var t measure.Tally
	return t.Over(j, func(ctx context.Context) error {
		consumed := make(chan error, 1)
		go func() {
			due := make(map[client.MessageID]time.Time) // of the sampled messages
			consumed <- consumeOne(ctx, j, func(d *client.Delivery) {
				mark := d.Body[badMark]
				switch {
				case mark == markGood && d.Ack() == nil:
					t.Answered(measure.Stamped(d.Body), true, nil)
				case mark == markGood: // delivered again
				case j.AckBad:
					_ = d.Ack() // one that fails is delivered again, like a nack
				case mark == markSample:
					if at, again := due[d.ID]; again {
						t.Delivered(at)
					}
					due[d.ID] = time.Now().Add(j.Wait)
					_ = d.Nack()
				default:
					_ = d.Nack()
				}
			})
		}()
		err := publishMarked(ctx, j, pub, &t)
		return firstOf([]error{err, closing(pub.Close), <-consumed})
	})
}

// publishMarked publishes until ctx ends. The same messages of each run are bad.
func publishMarked(ctx context.Context, j measure.Job, pub *client.Publisher, t *measure.Tally) error {
	body := measure.Payload(j.Size)
	random := rand.New(rand.NewPCG(uint64(j.Bad), 1))
	send := func(_ int, due time.Time) error {
		measure.Stamp(body, due)
		body[badMark] = markGood
		if random.IntN(100) < j.Bad {
			body[badMark] = markBad
			if random.IntN(oneSample) == 0 {
				body[badMark] = markSample
			}
		}
		err := pub.PublishAsync(ctx, client.Message{Body: body}, func(_ client.Receipt, err error) {
			if err != nil {
				t.Answered(due, false, err)
			}
		})
		if ctx.Err() != nil { // the time is up
			return nil
		}
		return err
	}
	if j.Rate > 0 {
		return measure.Pace(ctx, j.Rate, send)
	}
	for ctx.Err() == nil {
		if err := send(0, time.Now()); err != nil {
			return err
		}
	}
	return nil
}
