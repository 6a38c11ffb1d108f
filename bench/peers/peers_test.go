package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/bench/measure"
)

// TestPlan_FitsItsTime: a run takes 45 minutes at most.
func TestPlan_FitsItsTime(t *testing.T) {
	p := standard(false)
	if err := p.check(); err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	for _, turn := range p.turns() {
		sum += p.lasts(turn)
	}
	if sum > 45*time.Minute {
		t.Errorf("a run takes %s", sum)
	}
	if full := standard(true); len(full.Rows) != len(rows) || full.check() != nil {
		t.Errorf("the long run has the rows %v", full.Rows)
	}
}

// TestPlan_TakesTurns: each round has each broker once, and begins with another one.
func TestPlan_TakesTurns(t *testing.T) {
	p := plan{Brokers: []string{"a", "b", "c"}, Rounds: 2}
	want := []turn{{0, "a"}, {0, "b"}, {0, "c"}, {1, "b"}, {1, "c"}, {1, "a"}}
	if got := p.turns(); !slices.Equal(got, want) {
		t.Errorf("turns are %v, want %v", got, want)
	}
}

func TestPlan_Check(t *testing.T) {
	for _, p := range []plan{
		{Brokers: []string{"nobody"}, Rows: []string{"one"}},
		{Brokers: []string{"columba"}, Rows: []string{"nothing"}},
		{Brokers: []string{"columba"}, Rows: []string{"consume"}},
	} {
		if p.check() == nil {
			t.Errorf("%v is accepted", p)
		}
	}
}

// madeUp is a record of two brokers, two rounds and some rows.
func madeUp() record {
	r := record{Plan: plan{
		Brokers: []string{"columba", "nats-fsync", "kafka"}, Rows: []string{"one", "publish", "consume"}, Rounds: 2,
	}}
	for round := range 2 {
		for i, name := range r.Plan.Brokers[:2] {
			o := measure.Outcome{Messages: int64(3000*(round+1) - 1000*i), Seconds: 1, P50: 0.25}
			m := measured{Outcome: o, Servers: 7, Client: 2}
			r.Lives = append(r.Lives, life{turn: turn{round, name}, Rows: map[string]measured{"one": m, "publish": m}})
		}
	}
	return r
}

// TestRecord_Resumes: a run goes on where one with the same plan ended. Any other begins anew.
func TestRecord_Resumes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "done.json")
	before := madeUp()
	if err := before.save(path); err != nil {
		t.Fatal(err)
	}
	same := record{Plan: before.Plan}
	if err := same.resume(path); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(same.Lives, before.Lives) {
		t.Errorf("resumed with %v, want %v", same.Lives, before.Lives)
	}
	if _, found := same.find(turn{1, "nats-fsync"}); !found {
		t.Error("a turn that was done is not found")
	}
	if _, found := same.find(turn{1, "kafka"}); found {
		t.Error("a turn is found that was not done")
	}
	other := record{Plan: before.Plan}
	other.Plan.For = time.Minute
	if err := other.resume(path); err != nil || len(other.Lives) != 0 {
		t.Errorf("another plan resumed with %v, %v", other.Lives, err)
	}
	if _, err := os.Stat(path + ".old"); err != nil {
		t.Error("the other record is not put aside:", err)
	}
	if err := other.resume(path); err != nil {
		t.Error("no record:", err)
	}
}

func TestSpread(t *testing.T) {
	if got := spreadOf([]float64{9000, 1, 12.34}).String(); got != "**12.3** (1–9,000)" {
		t.Error(got)
	}
	if got := spreadOf(nil).String(); got != "–" {
		t.Error(got)
	}
	if got := number(1234567); got != "1,234,567" {
		t.Error(got)
	}
}

// TestRecord_Judges: the ratio is the median of those within a round.
func TestRecord_Judges(t *testing.T) {
	r := madeUp()
	got := r.judge()
	if len(got) != 1 || got[0].Kept || math.Abs(got[0].Ratio.Median-1.2) > 0.001 || got[0].Bound != "≥ 2" {
		t.Errorf("judged %+v", got)
	}
}

// TestRecord_FailedRows: a row that fails is no number, and is told; a bound of such a row of ours is missed.
func TestRecord_FailedRows(t *testing.T) {
	r := madeUp()
	r.Lives[0].Failed = map[string]string{"publish": "too much"}
	r.Lives[1].Failed = map[string]string{"one": "too slow"}
	delete(r.Lives[0].Rows, "publish")
	delete(r.Lives[1].Rows, "one")
	fast := r.Lives[2].Rows["publish"]
	fast.Messages = 20_000
	r.Lives[2].Rows["publish"] = fast
	text := r.markdown(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	for _, want := range []string{
		"**20,000** (20,000–20,000), failed in 1 of 2 rounds", "**0.25** (0.25–0.25), failed in 1 of 2 rounds",
		"* Columba, round 1, publish 1 KiB, 4 × 1,000 in flight: **failed**: too much",
		"* NATS JetStream, fsync, round 1, one in flight, 1 KiB: **failed**: too slow",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if got := r.judge(); len(got) != 1 || got[0].Kept || got[0].Ratio.Median != 4 {
		t.Errorf("judged %+v", got)
	}
}

func TestRecord_Markdown(t *testing.T) {
	r := madeUp()
	r.Skipped = map[string]string{"rabbitmq": "no"}
	text := r.markdown(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	for _, want := range []string{
		"# Columba and other brokers, 2026-01-02\n", "| Columba | **3,000** (3,000–6,000) | – |\n",
		"| NATS JetStream, fsync | **0.25** (0.25–0.25) |\n",
		"| Columba | 7 + 2 |", "| FAIL |", "**Skipped: RabbitMQ quorum queue**",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestRecord_Plot: the plot is well-formed, and has a bar for each figure that was measured.
func TestRecord_Plot(t *testing.T) {
	r := madeUp()
	bars, d := 0, xml.NewDecoder(strings.NewReader(r.plot()))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "line" {
			bars++
		}
	}
	if bars != 4 { // two figures of two brokers
		t.Errorf("%d bars", bars)
	}
}

// TestLane_AnswersInOrder: what one publisher has sent is answered once, in order, and close waits for it.
func TestLane_AnswersInOrder(t *testing.T) {
	var got []int
	l := newLane(4, func(n int) error { return nil })
	for n := range 100 {
		l.add(n, func(error) { got = append(got, n) })
	}
	if err := l.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(got) != 100 || !slices.IsSorted(got) {
		t.Errorf("answered: %v", got)
	}
}

// stalling is a broker that does not answer for a while.
type stalling struct {
	driver
	until time.Time
}

func (s *stalling) publisher(context.Context, measure.Job) (publisher, error) { return s, nil }

func (s *stalling) publish(context.Context, []byte) error { return nil }

func (s *stalling) start(_ context.Context, _ []byte, answered func(error)) error {
	time.AfterFunc(time.Until(s.until), func() { answered(nil) })
	return nil
}

func (s *stalling) close(context.Context) error {
	time.Sleep(time.Until(s.until))
	return nil
}

// TestSteady_TimesFromWhenDue: a broker that stalls makes those messages slow that came due meanwhile, not only the one
// that it had.
func TestSteady_TimesFromWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &stalling{until: time.Now().Add(3 * time.Second)}
		o, err := steady(d, measure.Job{Kind: kindSteady, Size: 100, Rate: 100, Warm: time.Second, For: 4 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		// Of the messages due in the first three seconds the last waited for nothing, and the first for three seconds.
		if o.P99 < 2500 || o.P50 < 300 {
			t.Errorf("p50 %v ms, p99 %v ms", o.P50, o.P99)
		}
	})
}

// TestConsumeAll_EndsInTime: a backlog that takes longer than the time of the job is left, and the rate is that of the
// time.
func TestConsumeAll_EndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var acked atomic.Int64
		d := &endless{acked: &acked}
		o, err := consumeAll(d, measure.Job{Kind: kindConsume, Count: math.MaxInt64, Consumers: 2, For: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if o.PerSecond() < 190 || o.PerSecond() > 210 || o.Total != acked.Load() {
			t.Errorf("%v", o)
		}
	})
}

// endless gives each consumer a hundred messages a second.
type endless struct {
	driver
	acked *atomic.Int64
}

func (e *endless) consume(ctx context.Context, _ measure.Job, got func([]byte)) error {
	for ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
		got(nil)
		e.acked.Add(1)
	}
	return nil
}

// TestJob_Travels: a worker gets the job as it was.
func TestJob_Travels(t *testing.T) {
	for _, r := range rows {
		text, err := json.Marshal(r.job)
		if err != nil {
			t.Fatal(err)
		}
		var back measure.Job
		if err := json.Unmarshal(text, &back); err != nil || back != r.job {
			t.Errorf("%s: %v became %v, %v", r.name, r.job, back, err)
		}
		if loads[r.job.Kind] == nil {
			t.Errorf("%s: nobody does %q", r.name, r.job.Kind)
		}
	}
}
