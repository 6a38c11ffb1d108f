package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/bench/measure"
)

func TestReportCell(t *testing.T) {
	for _, c := range []struct {
		cell cell
		want string
	}{
		{cell{BadPercent: 5, BackoffSeconds: 20, Published: 1000, Ratio: 0.76, LastQuarter: 950}, "| 5% bad, backoff 20s, half of the load | 0.76 × | ≥ 0.75 | PASS "},
		{cell{BadPercent: 5, Published: 1000, Ratio: 0.74, LastQuarter: 1}, "| 5% bad, backoff 0s, half of the load | 0.74 × | ≥ 0.75 | FAIL "},
		{cell{BadPercent: 95, Published: 1000, Ratio: 0.1, LastQuarter: 1}, "| 95% bad, backoff 0s, half of the load | 0.10 × |  | 0 good ones"},
		{cell{BadPercent: 95, BackoffSeconds: 300, Ratio: 0}, "| 95% bad, backoff 5m0s, full load | 0 × |  | 0 good ones"},
		{cell{BadPercent: 20, Published: 1000, Deliveries: 2, Ratio: 1}, "| 20% bad, backoff 0s, half of the load, 2 deliveries | 1 × | ≥ 0.75 | PASS "},
		{cell{BadPercent: 5, BackoffSeconds: 1, Published: 1000, Retries: 9, Late99: 1000, Wanted: 1.45}, "| 5% bad, backoff 1s, half of the load: retries are late | 1000 ms | ≤ 1000 | PASS "},
		{cell{BadPercent: 5, BackoffSeconds: 1, Published: 1000, Retries: 9, Late99: 1001, Wanted: 1.45}, "| 5% bad, backoff 1s, half of the load: retries are late | 1001 ms | ≤ 1000 | FAIL "},
		{cell{BadPercent: 20, BackoffSeconds: 1, Published: 1000, Retries: 9, Late99: 5000, Wanted: 2.8}, "| 20% bad, backoff 1s, half of the load: retries are late | 5000 ms |  | p99; 2.80 deliveries"},
		{cell{BadPercent: 5, BackoffSeconds: 1, Retries: 9, Late99: 5000, Wanted: 1.45}, "| 5% bad, backoff 1s, full load: retries are late | 5000 ms |  | p99; 1.45 deliveries"},
	} {
		if c.cell.Deliveries == 0 {
			c.cell.Deliveries = defaultDeliveries
		}
		r := &rig{report: newReport(&bytes.Buffer{}, t.TempDir(), "failing")}
		r.reportCell(c.cell)
		if text := r.report.markdown(time.Now()); !strings.Contains(text, c.want) {
			t.Errorf("%+v: no line that begins with %q in:\n%s", c.cell, c.want, text)
		}
		if len(r.report.Cells) != 1 || r.report.Cells[0] != c.cell {
			t.Errorf("cells are %+v, want %+v", r.report.Cells, c.cell)
		}
	}
}

// TestCell_Wanted counts the deliveries that there may be after a time: one more for each backoff that has passed.
func TestCell_Wanted(t *testing.T) {
	for _, c := range []struct {
		bad, deliveries int
		backoff         float64
		want            float64
	}{
		{20, 10, 0, 2.8}, {20, 2, 0, 1.2}, {5, 10, 1, 1.45}, {20, 10, 20, 1.4}, {20, 10, 300, 1}, {5, 0, -1, 1},
	} {
		if got := (cell{BadPercent: c.bad, Deliveries: c.deliveries, BackoffSeconds: c.backoff}).wanted(41 * time.Second); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// TestTally_LastQuarter counts messages that are acknowledged in the first quarter only.
func TestTally_LastQuarter(t *testing.T) {
	for _, early := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var tally measure.Tally
			o, err := tally.Over(measure.Job{For: 200 * time.Millisecond}, func(ctx context.Context) error {
				for began := time.Now(); ctx.Err() == nil; time.Sleep(time.Millisecond) {
					if !early || time.Since(began) < 50*time.Millisecond {
						tally.Answered(began, false, nil)
					}
				}
				return nil
			})
			if err != nil || early != (o.LastQuarter == 0) || o.Total == 0 {
				t.Errorf("early %v: %+v, %v", early, o, err)
			}
		})
	}
}
