package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"github.com/columbamq/columba/bench/machine"
	"github.com/columbamq/columba/bench/measure"
)

// rig runs a plan.
type rig struct {
	site
	ctx   context.Context
	out   io.Writer
	self  string // this binary, for workers
	state string // path of the record
	rec   record
}

func (r *rig) say(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

// describe fills in what the numbers depend on. Brokers that are not here leave the plan, and it says so.
func (r *rig) describe() error {
	r.rec.Machine, r.rec.Versions, r.rec.Skipped = machine.Describe(), make(map[string]string), make(map[string]string)
	var there []string
	for _, name := range r.rec.Plan.Brokers {
		b, err := brokerOf(name)
		if err != nil {
			return err
		}
		v, err := b.version(&r.site)
		switch {
		case errors.Is(err, errNotInstalled):
			r.rec.Skipped[name] = err.Error()
			r.say("SKIPPED: %s: %v", b.title, err)
		case err != nil:
			return err
		default:
			there = append(there, name)
			r.rec.Versions[name] = v
			r.say("%-24s %s", b.title, v)
		}
	}
	r.rec.Plan.Brokers = there
	r.rec.Clients = clients()
	if len(there) == 0 {
		return errors.New("no broker is here")
	}
	return nil
}

// clients are the versions of the peers' client libraries.
func clients() map[string]string {
	v := make(map[string]string)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, d := range info.Deps {
		for _, of := range []string{"nats.go", "franz-go", "amqp091-go"} {
			if strings.HasSuffix(d.Path, "/"+of) {
				v[d.Path] = d.Version
			}
		}
	}
	return v
}

// run does all turns that are not done yet.
func (r *rig) run() error {
	if err := r.rec.resume(r.state); err != nil {
		return err
	}
	var rest []turn
	var lasts time.Duration
	for _, t := range r.rec.Plan.turns() {
		if _, done := r.rec.find(t); !done {
			rest = append(rest, t)
			lasts += r.rec.Plan.lasts(t)
		}
	}
	r.say("%d of %d turns are left, about %s", len(rest), len(r.rec.Plan.turns()), lasts.Round(10*time.Second))
	for _, t := range rest {
		l, err := r.live(t)
		if err != nil {
			return fmt.Errorf("round %d: %w; the same command goes on here", t.Round+1, err)
		}
		r.rec.Lives = append(r.rec.Lives, l)
		if err := r.rec.save(r.state); err != nil {
			return err
		}
	}
	return nil
}

// live runs one cluster through all rows. A row that fails is noted, and those after it get a new cluster: the load
// that was too much for the first one may still be in it.
func (r *rig) live(t turn) (l life, err error) {
	b, err := brokerOf(t.Broker)
	if err != nil {
		return l, err
	}
	r.say("== round %d of %d: %s", t.Round+1, r.rec.Plan.Rounds, b.title)
	before := machine.Now()
	l = life{turn: t, Began: time.Now().UTC(), Load: machine.Load(), Rows: make(map[string]measured), Failed: make(map[string]string)}
	if l.Disk, err = measureDisk(r.dir); err != nil {
		return l, err
	}
	r.say("   append + fdatasync: 1 KiB p50 %.3f ms; 64 KiB, three files at once: %.0f MB/s", l.Disk.One, l.Disk.Three)
	var c *cluster // nil: the next row needs a new one
	defer func() {
		if c != nil {
			c.stop()
		}
	}()
	for _, row := range r.rec.Plan.rows() {
		if _, stored := l.Rows[row.after]; row.after != "" && !stored {
			l.Failed[row.name] = "the row that stores its messages has failed"
			continue
		}
		if c == nil {
			if c, err = r.warmed(b); err != nil && (len(l.Failed) == 0 || r.ctx.Err() != nil) {
				return l, err
			}
			if err != nil { // what was measured before stays
				l.Failed[row.name] = oneLine(err)
				continue
			}
		}
		m, err := r.measure(b, c, row, l.Rows)
		if err == nil {
			l.Rows[row.name] = m
			r.say("   %-44s %9.0f/s   %s   CPU µs/msg: servers %.1f, client %.1f", row.title, m.PerSecond(), latency(m), m.Servers, m.Client)
			continue
		}
		if r.ctx.Err() != nil {
			return l, fmt.Errorf("%s: %s: %w", b.name, row.name, err)
		}
		l.Failed[row.name] = oneLine(err)
		r.say("   %-44s FAILED: %v", row.title, err)
		c.stop()
		c = nil
	}
	if c != nil {
		c.stop() // before the CPU time of others is read: a process counts as this one's once it was waited for
		c = nil
	}
	l.Others = machine.Now().Others(before)
	return l, nil
}

// oneLine is the text of an error without line breaks, for a list of the results.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// latency of a row that has one.
func latency(m measured) string {
	if m.P99 == 0 {
		return strings.Repeat(" ", len("p50 12345.67 ms p99 12345.67 ms"))
	}
	return fmt.Sprintf("p50 %8.2f ms p99 %8.2f ms", m.P50, m.P99)
}

// warmed is a new cluster that has had its warm-up.
func (r *rig) warmed(b broker) (*cluster, error) {
	c, err := r.start(r.ctx, b)
	if err != nil {
		return nil, err
	}
	if err := r.warm(b, c); err != nil {
		c.stop()
		return nil, fmt.Errorf("%s: warm-up: %w", b.name, err)
	}
	return c, nil
}

// warm has the cluster publish and consume as in the rows.
func (r *rig) warm(b broker, c *cluster) error {
	lasts := r.rec.Plan.Warm
	if b.slow {
		lasts = r.rec.Plan.JVMWarm
	}
	const queue = "warm"
	if err := r.prepare(b, c, driver.create, queue); err != nil {
		return err
	}
	stored, err := r.work(b, c, measure.Job{
		Kind: kindPublish, Queue: queue, Size: 1024, Producers: producers, InFlight: inFlight, For: lasts / 2,
	})
	if err != nil {
		return err
	}
	if err := r.prepare(b, c, driver.group, queue); err != nil {
		return err
	}
	_, err = r.work(b, c, measure.Job{
		Kind: kindConsume, Queue: queue, Consumers: consumers, Prefetch: prefetch, Count: stored.Total, For: lasts / 2,
	})
	return err
}

// prepare makes a queue, or its group.
func (r *rig) prepare(b broker, c *cluster, of func(driver, context.Context, string) error, queue string) error {
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	d, err := driverOf(b.kind, c.addr())
	if err != nil {
		return err
	}
	return of(d, ctx, queue)
}

func (r *rig) measure(b broker, c *cluster, row row, done map[string]measured) (m measured, err error) {
	j := row.job
	j.Queue, j.Warm, j.For = row.name, rowWarm, r.rec.Plan.For
	if row.after != "" {
		j.Queue, j.Count = row.after, done[row.after].Total
	} else if err := r.prepare(b, c, driver.create, j.Queue); err != nil {
		return m, err
	}
	if j.Consumers > 0 {
		if err := r.prepare(b, c, driver.group, j.Queue); err != nil {
			return m, err
		}
	}
	before, err := c.cpu()
	if err != nil {
		return m, err
	}
	if m.Outcome, err = r.work(b, c, j); err != nil {
		return m, err
	}
	after, err := c.cpu()
	each := 1e6 / float64(max(1, m.Total))
	m.Servers, m.Client = each*(after-before), each*m.CPU
	return m, err
}

// work does a job in a process of its own.
func (r *rig) work(b broker, c *cluster, j measure.Job) (o measure.Outcome, err error) {
	j.Addr = c.addr()
	arg, err := json.Marshal(j)
	if err != nil {
		return o, err
	}
	within := j.Warm + j.For + 4*patience
	ctx, cancel := context.WithTimeout(r.ctx, within)
	defer cancel()
	text, err := machine.Command(ctx, r.self, workerCommand, b.kind, string(arg)).Output()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return o, fmt.Errorf("messages are without an answer after %s", within)
	}
	if err != nil {
		return o, fmt.Errorf("worker %s: %w", arg, machine.WithStderr(err))
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return o, fmt.Errorf("worker %s said %.200q: %w", arg, text, err)
	}
	return o, nil
}
