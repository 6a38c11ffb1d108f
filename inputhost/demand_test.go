package inputhost

import (
	"testing"
	"time"
)

var testDemand = demandLimits{least: 2, most: 8, rate: 100, calm: 5 * time.Minute}

// A queue under growing load gets one extent more at a time, up to its streams; when the load is gone it gives them up
// one by one.
func TestDemand_UpAtOnceDownAfterCalm(t *testing.T) {
	var d demand
	now := time.Unix(0, 0)
	open := 0
	look := func(load float64, streams int) {
		now = now.Add(time.Second)
		rates := make([]float64, open)
		for i := range rates {
			rates[i] = load / float64(open)
		}
		if d.look(now, testDemand, rates, streams) {
			open--
		}
		open = max(open, d.want)
	}
	look(0, 5)
	if open != 2 {
		t.Fatalf("%d open, want the least", open)
	}
	for range 20 {
		look(1000, 5)
	}
	if open != 5 {
		t.Fatalf("%d open under ten times the load of one, want one for each of 5 streams", open)
	}
	look(250, 5) // five at half their rate: one less would not be comfortable
	for range 600 {
		look(290, 5)
	}
	if open != 5 {
		t.Fatalf("%d open, want all of them: the load does not fit well into four", open)
	}
	for range 4*60 + 50 {
		look(10, 5)
	}
	if open != 5 {
		t.Fatalf("%d open after less than five calm minutes", open)
	}
	for range 11 * 60 {
		look(10, 5)
	}
	if open != 3 && open != 2 {
		t.Fatalf("%d open after 15 calm minutes", open)
	}
	for range 10 * 60 {
		look(10, 5)
	}
	if open != 2 {
		t.Fatalf("%d open at last, want the least", open)
	}
}

func TestDemand_OneStreamNeedsNoMore(t *testing.T) {
	var d demand
	now := time.Unix(0, 0)
	for range 100 {
		now = now.Add(time.Second)
		if d.look(now, testDemand, []float64{1000, 0}, 1) || d.want != 2 {
			t.Fatalf("wants %d for one stream, want the least", d.want)
		}
	}
}

// A burst interrupts the calm.
func TestDemand_BurstBeginsTheCalmAnew(t *testing.T) {
	d := demand{want: 3}
	now := time.Unix(0, 0)
	for i := range 900 {
		now = now.Add(time.Second)
		load := 10.0
		if i%200 == 199 {
			load = 80
		}
		if d.look(now, testDemand, []float64{load, load, load}, 5) {
			t.Fatalf("gave one up after %d s, with bursts between", i)
		}
	}
}
