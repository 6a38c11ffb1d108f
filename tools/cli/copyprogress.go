package cli

import (
	"fmt"
	"time"

	"github.com/columbamq/columba/metadata/migration"
)

// copyLineEvery is the time between two lines that say how far a copy is, where no terminal shows a bar.
const copyLineEvery = 10 * time.Second

// copyProgress shows on stderr how far a copy of metadata is: a bar on a terminal, and a line now and then elsewhere.
type copyProgress struct {
	app   *app
	now   migration.Progress
	bar   *progress // of the rows that are copied, or of those that are compared
	began time.Time // the one or the other
	said  time.Time // when a line said something last
	rows  int       // that it told
}

func (a *app) newCopyProgress() *copyProgress { return &copyProgress{app: a} }

// at shows that the copy is so far. The calls do not overlap.
func (c *copyProgress) at(p migration.Progress) {
	if c.bar == nil || p.Check != c.now.Check {
		c.finish()
		c.begin(p)
	}
	c.bar.add(p.Rows - c.now.Rows)
	c.now.Rows, c.now.Again = p.Rows, p.Again
	switch {
	case p.Silent > 0:
		c.bar.above(c.app, fmt.Sprintf("Cassandra has not answered for %s; this goes on until it answers, or has not for two minutes: %v",
			p.Silent.Truncate(time.Second), p.Err))
		c.said = time.Now()
	case c.bar.begin == nil && time.Since(c.said) >= copyLineEvery:
		c.line()
	}
}

func (c *copyProgress) begin(p migration.Progress) {
	c.now = migration.Progress{Check: p.Check, Total: p.Total}
	c.began = time.Now()
	c.said, c.rows = c.began, 0
	c.bar = c.app.newProgress("rows "+c.done(), p.Total, false)
	c.bar.start()
}

// done is what becomes of the rows.
func (c *copyProgress) done() string {
	if c.now.Check {
		return "compared"
	}
	return "copied"
}

// line says how far the copy is, how fast, and how long it will take.
func (c *copyProgress) line() {
	c.said, c.rows = time.Now(), c.now.Rows
	text := fmt.Sprintf("%d of %d rows %s", c.now.Rows, c.now.Total, c.done())
	if took := time.Since(c.began).Seconds(); c.now.Rows > 0 && took > 0 {
		speed := float64(c.now.Rows) / took
		left := time.Duration(float64(c.now.Total-c.now.Rows) / speed * float64(time.Second))
		text += fmt.Sprintf(", %.0f/s, about %s left", speed, left.Round(time.Second))
	}
	if c.now.Again > 0 {
		text += fmt.Sprintf("; tried again: %d calls", c.now.Again)
	}
	c.app.say("%s", text)
}

// finish ends the bar.
func (c *copyProgress) finish() {
	if c.bar == nil {
		return
	}
	if c.bar.begin == nil && c.now.Rows > c.rows {
		c.line()
	}
	c.bar.finish()
}
