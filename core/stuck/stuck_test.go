package stuck

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/columbamq/columba/core/dispatch"
)

func at(place dispatch.Place, attempts uint16, enqueued int64) dispatch.Standing {
	return dispatch.Standing{Seq: 1, Place: place, Attempts: attempts, Enqueued: enqueued}
}

func TestView_Reasons(t *testing.T) {
	one := View{Takers: 1, Credit: 1}
	with := func(s dispatch.Standing, change func(*View)) View {
		v := one
		v.Standing = s
		if change != nil {
			change(&v)
		}
		return v
	}
	var (
		unread        = at(dispatch.PlaceUnread, 0, 0)
		buffered      = at(dispatch.PlaceBuffered, 0, 1)
		flying        = at(dispatch.PlaceInFlight, 1, 1)
		ready         = at(dispatch.PlaceReady, 1, 1)
		unsaved       = at(dispatch.PlaceUnsaved, 1, 1)
		deadLettering = at(dispatch.PlaceDeadLettering, 3, 1)
	)
	for name, x := range map[string]struct {
		View
		want []Reason
	}{
		"nothing":                      {with(at(dispatch.PlaceDone, 0, 0), func(v *View) { v.SaveFails = true }), []Reason{Nothing}},
		"in flight":                    {with(flying, nil), []Reason{InFlight}},
		"in flight, all busy":          {with(flying, func(v *View) { v.Credit, v.Waiting = 0, true }), []Reason{InFlight, NoCredit}},
		"in flight, nothing else":      {with(flying, func(v *View) { v.Credit = 0 }), []Reason{InFlight}},
		"in flight, holder gone":       {with(flying, func(v *View) { v.Takers, v.Credit = 0, 0 }), []Reason{InFlight, NoConsumer}},
		"in flight, too many":          {with(flying, func(v *View) { v.AtLimit = true }), []Reason{OutstandingLimit, InFlight}},
		"in flight, read ahead":        {with(flying, func(v *View) { v.AtLimit, v.ShareReady, v.Credit, v.Waiting = true, true, 0, true }), []Reason{InFlight, NoCredit}},
		"blocked, read ahead, nobody":  {with(at(dispatch.PlaceBlocked, 3, 1), func(v *View) { v.AtLimit, v.ShareReady, v.Takers = true, true, 0 }), []Reason{Blocked, NoConsumer}},
		"kept back, read ahead":        {with(at(dispatch.PlaceDelayed, 0, 1), func(v *View) { v.AtLimit = true }), []Reason{GroupDelay}},
		"delayed, too many":            {with(at(dispatch.PlaceDelayed, 2, 1), func(v *View) { v.AtLimit = true }), []Reason{OutstandingLimit, Delayed}},
		"buffered, read ahead":         {with(buffered, func(v *View) { v.AtLimit, v.ShareReady = true, true }), []Reason{Ready}},
		"in flight, full":              {with(flying, func(v *View) { v.Full = true }), []Reason{CheckpointFull, InFlight}},
		"delayed":                      {with(at(dispatch.PlaceDelayed, 2, 1), nil), []Reason{Delayed}},
		"delayed, metadata away":       {with(at(dispatch.PlaceDelayed, 2, 1), func(v *View) { v.SaveFails = true }), []Reason{Delayed, CheckpointNotSaved}},
		"delayed, many retries":        {with(at(dispatch.PlaceDelayed, 2, 1), func(v *View) { v.RetryLimit = true }), []Reason{RetryLimit, Delayed}},
		"buffered, many retries":       {with(buffered, func(v *View) { v.RetryLimit = true }), []Reason{RetryLimit}},
		"a retry, many retries":        {with(ready, func(v *View) { v.RetryLimit = true }), []Reason{Ready, RetryLimit}},
		"nobody, many retries":         {with(buffered, func(v *View) { v.Takers, v.RetryLimit = 0, true }), []Reason{NoConsumer, RetryLimit}},
		"kept back":                    {with(at(dispatch.PlaceDelayed, 0, 1), nil), []Reason{GroupDelay}},
		"blocked":                      {with(at(dispatch.PlaceBlocked, 3, 1), nil), []Reason{Blocked}},
		"dead lettering":               {with(deadLettering, nil), []Reason{DeadLettering}},
		"deadLettering, not taken":     {with(deadLettering, func(v *View) { v.DLQFails = true }), []Reason{DLQNotWritable}},
		"retry queueing":               {with(deadLettering, func(v *View) { v.Place = dispatch.PlaceRetryQueue }), []Reason{RetryQueueing}},
		"retry queueing, refused":      {with(deadLettering, func(v *View) { v.Place, v.RetryQueueFails = dispatch.PlaceRetryQueue, true }), []Reason{RetryNotWritable}},
		"retry queueing, unsure":       {with(deadLettering, func(v *View) { v.Place, v.Certain = dispatch.PlaceRetryQueue, time.Unix(1, 0) }), []Reason{AppendUnknown}},
		"the same, not taken":          {with(deadLettering, func(v *View) { v.Place, v.Certain, v.RetryQueueFails = dispatch.PlaceRetryQueue, time.Unix(1, 0), true }), []Reason{AppendUnknown, RetryNotWritable}},
		"deadLettering, perhaps there": {with(deadLettering, func(v *View) { v.Certain = time.Unix(1, 0) }), []Reason{AppendUnknown}},
		"deadLettering, not read":      {with(at(dispatch.PlaceDeadLettering, 3, 0), func(v *View) { v.Unreadable = true }), []Reason{NoReplica}},
		"unread":                       {with(unread, nil), []Reason{Reading}},
		"unread, nobody":               {with(unread, func(v *View) { v.Takers = 0 }), []Reason{NoConsumer}},
		"unread, no store":             {with(unread, func(v *View) { v.Unreadable = true }), []Reason{NoReplica}},
		"buffered, no store":           {with(buffered, func(v *View) { v.Takers, v.Unreadable = 0, true }), []Reason{NoConsumer, NoReplica}},
		"in flight, no store":          {with(flying, func(v *View) { v.Unreadable = true }), []Reason{InFlight, NoReplica}},
		"unread, memory":               {with(unread, func(v *View) { v.MemoryFull = true }), []Reason{MemoryFull}},
		"unread, many blocked":         {with(unread, func(v *View) { v.AtLimit = true }), []Reason{OutstandingLimit}},
		"ready":                        {with(ready, nil), []Reason{Ready}},
		"ready, not read again":        {with(at(dispatch.PlaceReady, 1, 0), nil), []Reason{Reading}},
		"ready, all busy":              {with(ready, func(v *View) { v.Credit = 0 }), []Reason{NoCredit}},
		"ready, open":                  {with(ready, func(v *View) { v.BreakerOpen, v.Throttled = true, true }), []Reason{BreakerOpen}},
		"ready, all busy, open":        {with(ready, func(v *View) { v.Credit, v.BreakerOpen = 0, true }), []Reason{NoCredit, BreakerOpen}},
		"unread, nobody, open":         {with(unread, func(v *View) { v.Takers, v.Credit, v.BreakerOpen = 0, 0, true }), []Reason{NoConsumer, BreakerOpen}},
		"ready, nobody, open":          {with(ready, func(v *View) { v.Takers, v.Credit, v.BreakerOpen = 0, 0, true }), []Reason{NoConsumer, BreakerOpen}},
		"ready, all pause":             {with(ready, func(v *View) { v.Throttled = true }), []Reason{Throttled}},
		"delayed, open":                {with(at(dispatch.PlaceDelayed, 2, 1), func(v *View) { v.BreakerOpen = true }), []Reason{Delayed, BreakerOpen}},
		"ready, lease expired":         {with(ready, func(v *View) { v.LeaseExpired, v.Takers = true, 0 }), []Reason{LeaseExpired}},
		"ready is not ordered":         {with(ready, func(v *View) { v.ChainWaits = true }), []Reason{Ready}},
		"alone":                        {with(at(dispatch.PlaceIsolated, 2, 1), func(v *View) { v.Credit, v.BreakerOpen = 0, true }), []Reason{Isolated, BreakerOpen}},
		"alone, nobody":                {with(at(dispatch.PlaceIsolated, 2, 1), func(v *View) { v.Takers = 0 }), []Reason{NoConsumer}},
		"buffered, nobody":             {with(buffered, func(v *View) { v.Takers = 0 }), []Reason{NoConsumer}},
		"buffered, out of order":       {with(buffered, func(v *View) { v.ChainWaits = true }), []Reason{ChainOrder}},
		"buffered, full":               {with(buffered, func(v *View) { v.Full = true }), []Reason{CheckpointFull}},
		"buffered, at limit":           {with(buffered, func(v *View) { v.AtLimit = true }), []Reason{OutstandingLimit}},
		"at limit, all busy":           {with(buffered, func(v *View) { v.AtLimit, v.Credit = true, 0 }), []Reason{NoCredit}},
		"at limit, open":               {with(buffered, func(v *View) { v.AtLimit, v.BreakerOpen = true, true }), []Reason{BreakerOpen}},
		"at limit, all pause":          {with(buffered, func(v *View) { v.AtLimit, v.Throttled = true, true }), []Reason{Throttled}},
		"unsaved":                      {with(unsaved, nil), []Reason{Ready}},
		"unsaved, metadata away":       {with(unsaved, func(v *View) { v.SaveFails = true }), []Reason{CheckpointNotSaved}},
		"other letters not taken":      {with(flying, func(v *View) { v.DLQFails = true }), []Reason{InFlight, DLQNotWritable}},
		"unsaved, but nobody asks":     {with(unsaved, func(v *View) { v.Takers, v.Credit = 0, 0 }), []Reason{NoConsumer}},
	} {
		if diff := cmp.Diff(x.want, x.Reasons()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestView_ThereIsAlwaysAReason, each once, and each with a text.
func TestView_ThereIsAlwaysAReason(t *testing.T) {
	places := []dispatch.Place{
		dispatch.PlaceDone, dispatch.PlaceUnread, dispatch.PlaceBuffered, dispatch.PlaceInFlight, dispatch.PlaceDelayed,
		dispatch.PlaceUnsaved, dispatch.PlaceReady, dispatch.PlaceIsolated, dispatch.PlaceDeadLettering, dispatch.PlaceBlocked,
	}
	rapid.Check(t, func(t *rapid.T) {
		is := func() bool { return rapid.Bool().Draw(t, "is") }
		v := View{
			Standing: at(rapid.SampledFrom(places).Draw(t, "place"), rapid.Uint16().Draw(t, "attempts"), rapid.Int64Range(0, 1).Draw(t, "enqueued")),
			Takers:   rapid.IntRange(0, 1).Draw(t, "takers"), Waiting: is(), Full: is(), AtLimit: is(), ShareReady: is(), MemoryFull: is(), ChainWaits: is(),
			Unreadable: is(), LeaseExpired: is(), DLQFails: is(), RetryQueueFails: is(), SaveFails: is(), BreakerOpen: is(), Throttled: is(), RetryLimit: is(),
		}
		v.Credit = rapid.IntRange(0, v.Takers).Draw(t, "credit")
		seen := map[Reason]bool{}
		for _, r := range v.Reasons() {
			if seen[r] || r.Text() == "" {
				t.Fatalf("%v of %+v: %q twice or without a text", v.Reasons(), v, r)
			}
			seen[r] = true
		}
		if len(seen) == 0 {
			t.Fatalf("no reason for %+v", v)
		}
	})
}

// TestInGroup_CommandsCanBePasted looks for what a reader would have to fill in.
func TestInGroup_CommandsCanBePasted(t *testing.T) {
	named := 0
	for _, r := range Reasons() {
		text := InGroup(r.Text(), "/t/a", "work")
		if strings.Contains(text, "QUEUE") || strings.Contains(text, "GROUP") {
			t.Errorf("%s: %s", r, text)
		}
		if strings.Contains(text, "/t/a work") {
			named++
		}
	}
	if named < 5 {
		t.Errorf("%d texts name the group in a command", named)
	}
}
