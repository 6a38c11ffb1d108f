package demo

import (
	"context"
	"fmt"
	"runtime"
	"sort"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/core"
)

// verify compares everything with a direct walk of the tree, made by the same functions without any queue between.
func (r *run) verify(ctx context.Context) error {
	want := make([]Result, len(r.files))
	broken := make([]string, len(r.files)) // what the parser says, "" when nothing
	g, _ := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, f := range r.files {
		g.Go(func() error {
			res, err := hashFile(r.o.Dir, f)
			want[i] = res
			if perr := parseFile(r.o.Dir, f); perr != nil {
				broken[i] = perr.Error()
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	var wrong []string
	r.results.mu.Lock()
	for _, w := range want {
		got, ok := r.results.mu.byPath[w.Path]
		if w.Task = got.Task; !ok || got != w {
			wrong = append(wrong, fmt.Sprintf("result of %s: got %+v, want %+v", w.Path, got, w))
		}
		r.report.Bytes += int64(w.Size)
		r.report.Lines += int64(w.Lines)
	}
	if n := len(r.results.mu.byPath); n != len(want) {
		wrong = append(wrong, fmt.Sprintf("%d files have results, the tree has %d", n, len(want)))
	}
	for _, path := range r.results.mu.conflicts {
		wrong = append(wrong, "two different results of "+path)
	}
	r.report.Results = len(r.results.mu.byPath)
	r.report.DuplicateResults = r.results.mu.duplicates
	r.report.latencies(r.results.mu.latencies)
	r.results.mu.Unlock()

	letters, err := r.deadLetters(ctx)
	if err != nil {
		return err
	}
	for i, f := range r.files {
		if got := letters[f]; got != broken[i] {
			wrong = append(wrong, fmt.Sprintf("dead letter of %s: got %q, the parser says %q", f, got, broken[i]))
		}
		if broken[i] != "" {
			r.report.Broken++
		}
	}
	if r.report.Broken == 0 && strings.Contains(strings.Join(r.files, "\n"), "testdata") {
		r.logf("no file of this tree fails to parse, so the dead letter queue shows nothing")
	}
	r.parsed.mu.Lock()
	r.report.Deliveries, r.report.Redelivered = r.parsed.deliveries, r.parsed.redelivered
	r.parsed.mu.Unlock()
	if len(wrong) > 0 {
		sort.Strings(wrong)
		for _, w := range wrong[:min(len(wrong), 20)] {
			r.logf("DIFFERENT: %s", w)
		}
		return core.Errorf(core.CodeCorrupt, "%d differences between the workers and a direct walk", len(wrong))
	}
	r.report.Verified = true
	return nil
}

// deadLetters of the parse group: path → the parser's message. A duplicate is counted; a foreign reason is left for the
// comparison.
func (r *run) deadLetters(ctx context.Context) (map[string]string, error) {
	out := make(map[string]string)
	for d, err := range r.c.Admin().DeadLetters(ctx, filesQueue, parseGroup) {
		if err != nil {
			return nil, err
		}
		path := string(d.Message.Body)
		if _, twice := out[path]; twice {
			r.report.DuplicateLetters++
			continue
		}
		out[path] = d.Error
		r.report.DeadLetters++
		if most := maxDeliveries + r.report.ServersKilled; d.Attempts < maxDeliveries || d.Attempts > most { // a crash interrupts one, which does not count
			return nil, core.Errorf(core.CodeCorrupt, "dead letter of %s after %d attempts, want %d to %d", path, d.Attempts, maxDeliveries, most)
		}
	}
	return out, nil
}
