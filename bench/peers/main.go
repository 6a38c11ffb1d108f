// Command peers compares Columba with other brokers: one load generator with a driver for each, and clusters of three
// nodes that take turns on this machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// workerCommand makes this binary a worker: one process that does one job and prints its outcome.
const workerCommand = "load"

func main() {
	var err error
	if len(os.Args) == 4 && os.Args[1] == workerCommand {
		err = work(os.Args[2], os.Args[3])
	} else {
		err = compare()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func compare() error {
	full := flag.Bool("full", false, "all rows, five rounds, 30 s a row")
	p := standard(false)
	columba := flag.String("columba", "bin/columba", "`path` of the binary of Columba")
	peers := flag.String("peers", "bin/peers", "`directory` of what install.sh installs")
	out := flag.String("out", "bench/results", "`directory` for the results; empty: print only")
	state := flag.String("state", "bin/peers/done.json", "`path` of the record of finished turns, where a run goes on")
	flag.StringVar(&p.Dir, "dir", "", "scratch `directory` on the disk to be measured (default: that of temporary files)")
	only := flag.String("brokers", strings.Join(p.Brokers, ","), "brokers, separated by commas")
	rows := flag.String("rows", "", "rows, separated by commas (default: those of the run)")
	flag.IntVar(&p.Rounds, "rounds", 0, "rounds (default: 3, with -full 5)")
	flag.DurationVar(&p.For, "time", 0, "how long a row is measured (default: 10s, with -full 30s)")
	flag.DurationVar(&p.Warm, "warm", p.Warm, "how long a cluster is loaded before its first row")
	flag.DurationVar(&p.JVMWarm, "jvmwarm", p.JVMWarm, "the same for a broker on a JVM")
	flag.StringVar(&p.Heap, "heap", p.Heap, "heap of each JVM")
	flag.Parse()

	s := standard(*full)
	p.Brokers, p.Rows = strings.Split(*only, ","), s.Rows
	if *rows != "" {
		p.Rows = strings.Split(*rows, ",")
	}
	if p.Rounds == 0 {
		p.Rounds = s.Rounds
	}
	if p.For == 0 {
		p.For = s.For
	}
	if err := p.check(); err != nil {
		return err
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(p.Dir, "columba-peers")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	r := &rig{ctx: ctx, out: os.Stdout, self: self, state: *state, rec: record{Plan: p}}
	r.dir, r.heap = scratch, p.Heap
	for to, from := range map[*string]string{&r.columba: *columba, &r.peers: *peers} {
		if *to, err = filepath.Abs(from); err != nil {
			return err
		}
	}
	if err := r.describe(); err != nil {
		return err
	}
	if err := r.run(); err != nil {
		return err
	}
	return r.finish(*out)
}

// finish writes the results and judges them. The record goes: the next run begins anew.
func (r *rig) finish(out string) error {
	if out == "" {
		r.say("\n%s", r.rec.markdown(time.Now()))
	} else {
		if err := r.rec.write(out, time.Now()); err != nil {
			return err
		}
		r.say("written: %s", filepath.Join(out, "peers.md, peers.json and peers.svg"))
	}
	if err := os.Remove(r.state); err != nil {
		return err
	}
	var errs []error
	for _, v := range r.rec.judge() {
		if !v.Kept {
			errs = append(errs, fmt.Errorf("%s is %s, and must be %s", v.Name, v.Ratio, v.Bound))
		}
	}
	for _, l := range r.rec.Lives {
		for row, why := range l.Failed {
			if l.Broker == "columba" {
				errs = append(errs, fmt.Errorf("round %d: row %s fails: %s", l.Round+1, row, why))
			}
		}
	}
	return errors.Join(errs...)
}
