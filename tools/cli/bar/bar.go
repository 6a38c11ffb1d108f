// Package bar owns progress bars on a terminal.
package bar

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const (
	// Every is how often the line is drawn.
	Every = 200 * time.Millisecond
	// most and least bound the columns of the bar itself.
	most, least = 40, 5
)

// Options of a Bar.
type Options struct {
	Out   io.Writer  // a terminal
	Width func() int // its columns; what does not fit is cut off
	What  string     // is counted
	Total int64      // 0: it is not known
	Bytes bool       // are counted
}

// Bar draws a line again and again, from Start to Finish. Add is safe for concurrent use.
type Bar struct {
	o       Options
	began   time.Time
	counted atomic.Int64
	stop    chan struct{}
	drawing sync.WaitGroup
}

// Start draws a bar, and goes on until Finish.
func Start(o Options) *Bar {
	b := &Bar{o: o, began: time.Now(), stop: make(chan struct{})}
	b.draw()
	b.drawing.Go(func() {
		tick := time.NewTicker(Every)
		defer tick.Stop()
		for {
			select {
			case <-b.stop:
				return
			case <-tick.C:
				b.draw()
			}
		}
	})
	return b
}

// Add counts n more.
func (b *Bar) Add(n int) { b.counted.Add(int64(n)) }

// Above prints a line of text, and the bar below it from then on.
func (b *Bar) Above(text string) { fmt.Fprintf(b.o.Out, "\r%s\x1b[K\n", text) }

// Finish draws the line for the last time, and leaves it there. It is called once.
func (b *Bar) Finish() {
	close(b.stop)
	b.drawing.Wait()
	b.draw()
	fmt.Fprintln(b.o.Out)
}

// draw puts the line where the one before was. A terminal that takes nothing is no reason to stop the work.
func (b *Bar) draw() {
	line := b.o.line(b.counted.Load(), time.Since(b.began))
	if width := b.o.Width(); width > 0 && utf8.RuneCountInString(line) >= width {
		line = string([]rune(line)[:width-1]) // a full line would scroll some terminals
	}
	fmt.Fprintf(b.o.Out, "\r%s\x1b[K", line) // and clear what is left of the one before
}

// wheel turns while nobody knows how much is to come.
var wheel = []rune("⠋⠙⠸⠴⠦⠇")

// line says how far it is after a time: with a bar, a share and the time that is left, where the total is known.
func (o Options) line(counted int64, took time.Duration) string {
	speed := 0.0
	if s := took.Seconds(); s > 0 {
		speed = float64(counted) / s
	}
	if o.Total <= 0 {
		turn := wheel[int(took/Every)%len(wheel)]
		return fmt.Sprintf("%s %s %c %s/s %s", o.What, o.amount(float64(counted)), turn, o.amount(speed), took.Truncate(time.Second))
	}
	share := min(float64(counted)/float64(o.Total), 1)
	left := "?"
	switch rest := o.Total - counted; {
	case rest <= 0:
		left = "0s"
	case speed > 0 && float64(rest)/speed < 1e6: // weeks are no forecast
		left = (time.Duration(float64(rest)/speed*float64(time.Second)) + time.Second - 1).Truncate(time.Second).String()
	}
	head := fmt.Sprintf("%s %s / %s ", o.What, o.amount(float64(counted)), o.amount(float64(o.Total)))
	tail := fmt.Sprintf(" %.2f%% %s/s ETA %s", 100*share, o.amount(speed), left)
	columns := most
	if width := o.Width(); width > 0 {
		columns = min(most, max(least, width-1-utf8.RuneCountInString(head)-utf8.RuneCountInString(tail)-2))
	}
	done := int(share * float64(columns))
	return head + "[" + strings.Repeat("=", done) + strings.Repeat("-", columns-done) + "]" + tail
}

// amount is a number of bytes, or of whatever is counted, for people.
func (o Options) amount(n float64) string {
	if !o.Bytes {
		return fmt.Sprintf("%.0f", n)
	}
	unit := 0
	for units := []string{"B", "KiB", "MiB", "GiB", "TiB"}; ; unit++ {
		switch {
		case unit == 0 && n < 1024:
			return fmt.Sprintf("%.0f B", n)
		case n < 1024 || unit == len(units)-1:
			return fmt.Sprintf("%.1f %s", n, units[unit])
		}
		n /= 1024
	}
}
