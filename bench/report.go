package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/columbamq/columba/bench/machine"
)

// Verdicts of a line.
const (
	pass = "PASS"
	fail = "FAIL"
	skip = "SKIP"
	info = "" // no bound
)

// line is one number.
type line struct {
	Section string
	Name    string
	Value   float64
	Unit    string
	Bound   string
	Verdict string
	Note    string
}

// stretch is a section's time and what else the machine did meanwhile.
type stretch struct {
	Name    string
	Seconds float64
	Load    string
	Others  float64 // percent of the machine's CPU time that other processes took
}

// report collects lines and prints each as it comes.
type report struct {
	out      io.Writer
	suite    string
	section  string
	dir      string
	Lines    []line
	Notes    []string
	Sections []stretch
	Cells    []cell // of failing
	profiles []profile
}

func newReport(out io.Writer, dir, suite string) *report {
	return &report{out: out, dir: dir, suite: suite}
}

// begin starts a section; the function it returns ends it.
func (r *report) begin(name string) (ended func()) {
	r.section = name
	fmt.Fprintf(r.out, "== %s\n", name)
	at, load, before := time.Now(), machine.Load(), machine.Now()
	return func() {
		s := stretch{Name: name, Seconds: time.Since(at).Seconds(), Load: load, Others: machine.Now().Others(before)}
		r.Sections = append(r.Sections, s)
		fmt.Fprintf(r.out, "   %.0f s; load average before: %s; other processes took %.0f%% of the CPU time\n", s.Seconds, s.Load, s.Others)
	}
}

func (r *report) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.Notes = append(r.Notes, r.section+", "+text)
	fmt.Fprintln(r.out, "   "+text)
}

func (r *report) add(l line) {
	l.Section = r.section
	r.Lines = append(r.Lines, l)
	fmt.Fprintf(r.out, "%-4s %-62s %12s %-6s %-10s %s\n", l.Verdict, l.Name, number(l.Value), l.Unit, l.Bound, l.Note)
}

func (r *report) info(name string, v float64, unit, note string) {
	r.add(line{Name: name, Value: v, Unit: unit, Verdict: info, Note: note})
}

func (r *report) skip(name, why string) { r.add(line{Name: name, Verdict: skip, Note: why}) }

func (r *report) atLeast(name string, v, bound float64, unit string) {
	r.judge(name, v, unit, "≥ "+number(bound), v >= bound)
}

func (r *report) atMost(name string, v, bound float64, unit string) {
	r.judge(name, v, unit, "≤ "+number(bound), v <= bound)
}

func (r *report) judge(name string, v float64, unit, bound string, ok bool) {
	r.add(line{Name: name, Value: v, Unit: unit, Bound: bound, Verdict: verdictOf(ok)})
}

func verdictOf(ok bool) string {
	if ok {
		return pass
	}
	return fail
}

// verdict is an error when a bound was missed.
func (r *report) verdict() error {
	missed := 0
	for _, l := range r.Lines {
		if l.Verdict == fail {
			missed++
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d bounds were missed", missed)
	}
	return nil
}

// save writes DATE-SUITE.md and .json.
func (r *report) save(dir string, now time.Time) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	name := filepath.Join(dir, now.Format("2006-01-02")+"-"+r.suite)
	data, err := json.MarshalIndent(map[string]any{
		"time": now.UTC().Format(time.RFC3339), "machine": machine.Describe(), "lines": r.Lines, "notes": r.Notes, "sections": r.Sections, "profiles": r.profiles, "cells": r.Cells,
	}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(name+".json", append(data, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(name+".md", []byte(r.markdown(now)), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "written: %s.md and .json\n", name)
	return nil
}

func (r *report) markdown(now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s, %s\n\nWritten by the benchmarks; how they measure is in their [README](../README.md).\n\n", title(r.suite), now.Format("2006-01-02"))
	for _, m := range machine.Describe() {
		fmt.Fprintf(&b, "* %s\n", m)
	}
	b.WriteString("\n| | | bound | |\n|---|--:|--:|---|\n")
	for _, l := range r.Lines {
		value := strings.TrimSpace(number(l.Value) + " " + l.Unit)
		if l.Verdict == skip {
			value = ""
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", l.Name, value, l.Bound, strings.TrimSpace(l.Verdict+" "+l.Note))
	}
	b.WriteString("\n## Repetitions and load\n\n")
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "* %s\n", n)
	}
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "* %s took %.0f s; load average before: %s; other processes took %.0f%% of the machine's CPU time\n", s.Name, s.Seconds, s.Load, s.Others)
	}
	if len(r.profiles) > 0 {
		b.WriteString("\n## Where the time goes\n\nCPU time by kind of work, and the functions on top; 1 KiB messages.\n")
	}
	for _, p := range r.profiles {
		fmt.Fprintf(&b, "\n### The %s\n\n%s\n\n```\n  flat    cum\n", p.Title, sentence(p))
		for _, e := range p.Top {
			fmt.Fprintf(&b, "%5.1f%% %5.1f%%  %s\n", e.Flat, e.WithAll, e.Function)
		}
		b.WriteString("of ours, with what they call:\n")
		for _, e := range p.Heavy {
			fmt.Fprintf(&b, "%5.1f%% %5.1f%%  %s\n", e.Flat, e.WithAll, e.Function)
		}
		b.WriteString("```\n")
	}
	return b.String()
}

// title of a suite: its name with a capital, and no hyphen.
func title(suite string) string {
	text := strings.ReplaceAll(suite, "-", " ")
	return strings.ToUpper(text[:1]) + text[1:]
}

// sentence names the kinds of work that count.
func sentence(p profile) string {
	var parts []string
	for _, s := range p.Shares {
		if s.Percent >= 1 {
			parts = append(parts, fmt.Sprintf("%.0f%% %s", s.Percent, s.What))
		}
	}
	return "Of its CPU time: " + strings.Join(parts, ", ") + "."
}

// number with three digits that count.
func number(v float64) string {
	switch {
	case v == float64(int64(v)) || v >= 100 || v <= -100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10 || v <= -10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
