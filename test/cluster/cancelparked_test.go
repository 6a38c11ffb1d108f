package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// TestCancel_WhatIsParked cancels one of two messages that are parked, by the path of the queue that it was published
// to and the receipt that is listed: it does not come back, and its life says so by either receipt, when it would have
// been due, too.
func TestCancel_WhatIsParked(t *testing.T) {
	bubble(t, Options{Stores: 2}, func(w *world) {
		w.group("g", patient)
		w.group("other", nil)
		receipts := w.receipts("a", "b")
		con := w.consumer("g")
		for _, body := range []string{"a", "b"} {
			w.ok(w.next(con, body, 1).Nack(client.After(10*time.Minute), client.Reason("later")))
		}
		w.eventually("both are parked", 10*time.Second, func() bool { return len(w.parked("g")) == 2 })
		first := receipts[0]
		i := slices.IndexFunc(w.parked("g"), func(p client.DelayedMessage) bool { return p.Origin == first.Receipt })
		parked := w.parked("g")[i]
		w.cancel(1, parked.Receipt)
		w.cancel(1, parked.Receipt)
		cancelled := func(when string) {
			t.Helper()
			_, groups := w.life(first)
			if s := groups["g"]; s.State != "cancelled" || s.RetryReceipt != parked.Receipt || s.Attempts != 1 || s.LastError != "later" || !s.Until.IsZero() {
				t.Errorf("%s its life: %+v", when, s)
			}
			if s := groups["other"]; s.State != "unread" && s.State != "ready" {
				t.Errorf("%s of the group that has not got it: %+v", when, s)
			}
			if _, groups := w.life(client.Receipt{Receipt: parked.Receipt, ID: first.ID}); len(groups) != 1 || groups["g"].State != "cancelled" {
				t.Errorf("%s the life of what is parked: %+v", when, groups)
			}
		}
		cancelled("at once")
		if left := w.parked("g"); len(left) != 1 || left[0].Origin != receipts[1].Receipt {
			t.Errorf("parked are %+v", left)
		}
		sleep(9*time.Minute + 50*time.Second)
		w.ok(w.next(con, "b", 2).Ack())
		if d := w.take(con, time.Minute); d != nil {
			t.Errorf("%s came, as attempt %d", d.Body, d.Attempt)
		}
		cancelled("after it would have been due,")
		if _, groups := w.life(receipts[1]); groups["g"].State != "settled" {
			t.Errorf("what was acked when it came back: %+v", groups["g"])
		}
		_, err := w.Client.Admin().Seek(w.t.Context(), queue, "g", core.Start{Mode: core.StartEarliest})
		w.ok(err)
		w.all(w.collect(con, 2), []string{"a", "b"}, true) // it is another life, which what was parked has no part in
		if _, groups := w.life(first); groups["g"].State != "settled" || !strings.Contains(groups["g"].Detail, parked.Receipt.String()+" was cancelled") {
			t.Errorf("after a seek its life: %+v", groups["g"])
		}
		w.close(con)
	})
}

// TestCancel_OfAnotherQueue cancels messages under the paths of queues that they are not of.
func TestCancel_OfAnotherQueue(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", patient)
		_, err := w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: "/test/another"})
		w.ok(err)
		first := w.receipts("a")[0]
		con := w.consumer("g")
		w.ok(w.next(con, "a", 1).Nack(client.After(10 * time.Minute)))
		w.eventually("it is parked", 10*time.Second, func() bool { return len(w.parked("g")) == 1 })
		at := w.parked("g")[0].Receipt
		for _, x := range []struct {
			path    string
			receipt core.Receipt
			code    core.Code
		}{
			{"/test/another", at, core.CodeNotFound},
			{queue + "/g.dlq", at, core.CodeNotFound},
			{queue, first.Receipt, core.CodeBadArgument}, // what was published to be delivered at once
			{core.RetryPath(queue, "g"), at, ""},
		} {
			results, err := w.Client.Cancel(w.t.Context(), x.path, x.receipt)
			w.ok(err)
			if got := core.CodeOf(results[0].Err); results[0].Err == nil && x.code != "" || results[0].Err != nil && got != x.code {
				t.Errorf("%s of %s: %v, want code %q", x.receipt, x.path, results[0].Err, x.code)
			}
		}
		w.close(con)
	})
}
