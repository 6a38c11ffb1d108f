package clienttest_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/client/clienttest"
	"github.com/columbamq/columba/core"
)

// The page on long jobs.

// part of a video.
type part struct{}

func (part) encode(context.Context) error {
	time.Sleep(10 * time.Second)
	return nil
}

func parts(*client.Delivery) iter.Seq[part] { return slices.Values(make([]part, 6)) }

func encode(ctx context.Context, d *client.Delivery) error {
	for part := range parts(d) {
		if err := part.encode(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx) // the lock is lost, or the program ends and Grace is over
		}
	}
	return nil
}

func encodeAll(ctx context.Context, c *client.Client, encode client.Handler) error {
	err := c.Work(ctx, "/demo/videos", "encode", encode, client.Concurrency(2), client.Prefetch(2))
	return err
}

func steps(*client.Delivery) iter.Seq[func()] {
	return slices.Values(slices.Repeat([]func(){func() { time.Sleep(40 * time.Second) }}, 2))
}

func encodeByHand(ctx context.Context, con *client.Consumer) error {
	for d, err := range con.Deliveries(ctx) {
		if err != nil {
			return err
		}
		for step := range steps(d) {
			if err := d.Extend(time.Minute); err != nil { // locked for a minute from now
				return err
			}
			step()
		}
		if err := d.Ack(); err != nil {
			return err
		}
	}
	return nil
}

func TestGuide_LongJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := clienttest.New(t)
		b.CreateQueue(t, "/demo/videos", core.GroupSpec{Name: "encode", LockTimeout: 30 * time.Second}, core.GroupSpec{Name: "hand", LockTimeout: 30 * time.Second})
		b.Publish(t, "/demo/videos", "a")
		got := &attempts{began: time.Now()}
		ctx, stop := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		for range 2 { // the second has nothing to do but to wait for what the first loses
			ended.Go(func() {
				err := encodeAll(ctx, b.Client(), func(ctx context.Context, d *client.Delivery) error {
					got.note(d)
					return encode(ctx, d)
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		con, err := b.Client().Consumer(t.Context(), "/demo/videos", "hand", client.Prefetch(1))
		ok(t, err)
		ended.Go(func() {
			if err := encodeByHand(ctx, con); err != nil {
				t.Error(err)
			}
		})
		b.WaitEmpty(t, "/demo/videos", "encode", time.Hour)
		b.WaitEmpty(t, "/demo/videos", "hand", time.Hour)
		stop()
		ended.Wait()
		ok(t, con.Close(context.Background()))
		if len(got.all) != 1 || got.all[0].n != 1 {
			t.Errorf("attempts %v, want one", got.all)
		}
	})
}

// The page on replay.

func startInThePast(ctx context.Context, c *client.Client) error {
	_, err := c.Admin().CreateGroup(ctx, core.GroupSpec{
		Queue: "/demo/clicks", Name: "report-3",
		Start: core.Start{Mode: core.StartTime, At: time.Now().Add(-2 * time.Hour)},
	})
	return err
}

func TestGuide_Replay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := clienttest.New(t)
		b.CreateQueue(t, "/demo/clicks", core.GroupSpec{Name: "report"})
		b.Publish(t, "/demo/clicks", "a", "b")
		b.Work(t, "/demo/clicks", "report", func(context.Context, *client.Delivery) error { return nil })
		b.WaitEmpty(t, "/demo/clicks", "report", time.Minute)
		b.Advance(10 * time.Second)
		ok(t, startInThePast(t.Context(), b.Client()))
		got, handler := handling(done)
		b.Work(t, "/demo/clicks", "report-3", handler)
		b.WaitEmpty(t, "/demo/clicks", "report-3", time.Minute)
		got.want(t, attempt{"a", 1, 0}, attempt{"b", 1, 0})
	})
}

// The page on order.

var errMalformed = errors.New("malformed")

// posted is what the ledger of cp queues has; each entry fails at first.
var posted struct {
	tries map[string]int
	all   []string
}

func post(_ context.Context, body []byte) error {
	if posted.tries[string(body)]++; posted.tries[string(body)] < 3 {
		return errors.New("down")
	}
	posted.all = append(posted.all, string(body))
	return nil
}

func apply(ctx context.Context, d *client.Delivery) error {
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		err := post(ctx, d.Body)
		if err == nil {
			return nil
		}
		if errors.Is(err, errMalformed) {
			return client.Reject(err.Error()) // a dead letter: no further attempt can help
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func applyAll(ctx context.Context, c *client.Client) error {
	err := c.Work(ctx, "/demo/accounts", "ledger", apply, client.Concurrency(1), client.Prefetch(1))
	return err
}

// accounts apply entries that carry numbers.
type accounts struct {
	mu      sync.Mutex
	applied map[string]int
	wrong   []entry
}

type entry struct {
	account string
	number  int
}

var ledger *accounts

func parseEntry(body []byte) (entry, error) {
	account, number, _ := strings.Cut(string(body), " ")
	n, err := strconv.Atoi(number)
	return entry{account, n}, err
}

func (a *accounts) next(account string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.applied[account] + 1
}

func (a *accounts) apply(e entry) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.applied[e.account]++; a.applied[e.account] != e.number {
		a.wrong = append(a.wrong, e)
	}
	return nil
}

func applyInOrder(ctx context.Context, d *client.Delivery) error {
	entry, err := parseEntry(d.Body)
	switch next := ledger.next(entry.account); {
	case err != nil:
		return client.Reject(err.Error())
	case entry.number < next:
		return nil // it was applied before
	case entry.number > next:
		return client.Retry(time.Second) // an earlier one is still to come
	}
	return ledger.apply(entry)
}

func TestGuide_Ordering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := clienttest.New(t)
		ctx, stop := context.WithCancel(t.Context())
		_, err := b.Client().Admin().CreateQueue(ctx, core.QueueSpec{Path: "/demo/accounts", Consistency: core.CP})
		ok(t, err)
		_, err = b.Client().Admin().CreateGroup(ctx, core.GroupSpec{Queue: "/demo/accounts", Name: "ledger"})
		ok(t, err)
		var want []string
		for i := range 20 {
			want = append(want, fmt.Sprint(i))
		}
		b.Publish(t, "/demo/accounts", want...)
		posted.tries, posted.all = map[string]int{}, nil
		ended := make(chan error, 1)
		go func() { ended <- applyAll(ctx, b.Client()) }() // joined below
		b.WaitEmpty(t, "/demo/accounts", "ledger", time.Hour)
		stop()
		ok(t, <-ended)
		if !slices.Equal(posted.all, want) {
			t.Errorf("applied %v, want them in order", posted.all)
		}
	})
}

func TestGuide_OrderingByNumbers(t *testing.T) {
	bubble(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries}, func(t *testing.T, b *clienttest.Broker) {
		ledger = &accounts{applied: map[string]int{}}
		b.Work(t, queue, "billing", applyInOrder, client.Concurrency(4))
		var bodies []string
		for i := 20; i > 0; i-- { // the worst order there is
			bodies = append(bodies, fmt.Sprintf("ada %d", i), fmt.Sprintf("bob %d", i))
		}
		b.Publish(t, queue, bodies...)
		b.WaitEmpty(t, queue, "billing", time.Hour)
		if ledger.applied["ada"] != 20 || ledger.applied["bob"] != 20 || len(ledger.wrong) > 0 {
			t.Errorf("applied %v, out of order %v", ledger.applied, ledger.wrong)
		}
	})
}

// The page on idempotent consumers.

// transaction is one on a database of ids and a sum.
type transaction struct {
	ids map[client.MessageID]bool
	sum int
}

var database *transaction

func inTransaction(_ context.Context, do func(*transaction) error) error { return do(database) }

func (tx *transaction) seen(id client.MessageID) bool { return tx.ids[id] }
func (tx *transaction) note(id client.MessageID)      { tx.ids[id] = true }

func (tx *transaction) add(amount []byte) error {
	n, err := strconv.Atoi(string(amount))
	tx.sum += n
	return err
}

func credit(ctx context.Context, d *client.Delivery) error {
	return inTransaction(ctx, func(tx *transaction) error {
		if tx.seen(d.ID) {
			return nil // done before: only the ack was lost
		}
		tx.note(d.ID)
		return tx.add(d.Body)
	})
}

func publishUntilKnown(ctx context.Context, pub *client.Publisher, body []byte) error {
	m := client.Message{ID: client.NewMessageID(), Body: body}
	_, err := pub.Publish(ctx, m)
	for errors.Is(err, client.ErrUnknownOutcome) && ctx.Err() == nil {
		_, err = pub.Publish(ctx, m) // the same id
	}
	return err
}

func TestGuide_Idempotent(t *testing.T) {
	bubble(t, core.GroupSpec{}, func(t *testing.T, b *clienttest.Broker) {
		pub, err := b.Client().Publisher(t.Context(), queue)
		ok(t, err)
		ok(t, publishUntilKnown(t.Context(), pub, []byte("1")))
		heal := b.LoseAnswers()
		time.AfterFunc(40*time.Second, heal)
		ok(t, publishUntilKnown(t.Context(), pub, []byte("10")))
		ok(t, pub.Close(t.Context()))
		database = &transaction{ids: map[client.MessageID]bool{}}
		n := 0
		b.Work(t, queue, "billing", func(ctx context.Context, d *client.Delivery) error {
			n++
			return credit(ctx, d)
		})
		b.WaitEmpty(t, queue, "billing", time.Hour)
		if database.sum != 11 || n < 3 {
			t.Errorf("%d deliveries make a sum of %d, want more than two to make 11", n, database.sum)
		}
	})
}
