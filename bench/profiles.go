package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/columbamq/columba/bench/machine"
	"github.com/columbamq/columba/bench/measure"
)

// profiles says where the time goes: CPU profiles of the server and of the client while publishing and while consuming.
func (r *rig) profiles() error {
	s, err := r.server("profiles")
	if err != nil {
		return err
	}
	defer s.remove()
	if err := r.createQueue(s); err != nil {
		return err
	}
	load := 2*r.slice + warm
	if _, err := r.profiled(s, "publish", load, measure.Job{Kind: "publish", Addr: s.addr, Queue: queuePath, Size: 1024, Warm: warm, For: load - warm}); err != nil {
		return err
	}
	m, err := s.metrics(r.ctx)
	if err != nil {
		return err
	}
	if err := r.createGroup(s, defaultLock); err != nil {
		return err
	}
	count := m["columba_inputhost_messages_total"]
	_, err = r.profiled(s, "consume", r.slice, measure.Job{Kind: "consume", Addr: s.addr, Queue: queuePath, Group: groupName, Count: int64(count)})
	return err
}

// profiled does the job with profiles of both sides.
func (r *rig) profiled(s *server, what string, load time.Duration, j measure.Job) (measure.Outcome, error) {
	j.Profile = filepath.Join(r.dir, what+".client.pprof")
	serverFile := filepath.Join(r.dir, what+".server.pprof")
	fetched := make(chan error, 1)
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	go func() { // joined below
		body, err := s.get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(load.Seconds()))))
		if err == nil {
			err = os.WriteFile(serverFile, body, 0o644)
		}
		fetched <- err
	}()
	o, err := r.worker(j)
	if err != nil {
		cancel()
		<-fetched
		return o, err
	}
	if err := <-fetched; err != nil {
		return o, err
	}
	for side, file := range map[string]string{"server": serverFile, "client": j.Profile} {
		p, err := r.profile(what, side, file)
		if err != nil {
			return o, err
		}
		r.report.profiles = append(r.report.profiles, p)
	}
	slices.SortFunc(r.report.profiles, func(a, b profile) int { return strings.Compare(b.Title, a.Title) })
	return o, nil
}

// profile is one CPU profile, summed up.
type profile struct {
	Title  string
	Shares []share // by kind of work, largest first; together all of it
	Top    []entry // functions, by their own time
	Heavy  []entry // functions of this module, by the time with what they call
}

type share struct {
	What    string
	Percent float64
}

type entry struct {
	Function      string
	Flat, WithAll float64 // percent
}

func (r *rig) profile(what, side, file string) (profile, error) {
	p := profile{Title: side + " while the client " + map[string]string{"publish": "publishes", "consume": "consumes"}[what]}
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	text, err := machine.Command(ctx, "go", "tool", "pprof", "-top", "-nodecount=100000", "-nodefraction=0", file).Output()
	if err != nil {
		return p, fmt.Errorf("go tool pprof: %w", machine.WithStderr(err))
	}
	entries := parseTop(string(text))
	p.Shares = shares(entries)
	p.Top = entries[:min(10, len(entries))]
	var ours []entry
	for _, e := range entries {
		if strings.HasPrefix(e.Function, modulePath) && !strings.Contains(e.Function, ".func") && !isLoop(e.Function) {
			e.Function = strings.Replace(e.Function, modulePath, "", 1)
			ours = append(ours, e)
		}
	}
	slices.SortStableFunc(ours, func(a, b entry) int { return int(100 * (b.WithAll - a.WithAll)) })
	p.Heavy = ours[:min(14, len(ours))]
	return p, nil
}

// isLoop: a connection's loop is everything that its handlers do, and says nothing more.
func isLoop(function string) bool {
	for _, f := range []string{"wire/ws.(*Conn).Run", "wire/ws.(*Mux).Run", "wire/ws.(*Conn).read", "wire/ws.(*Conn).write", "wire/ws.(*Conn).writeNext", "node.(*gated)", "node.(*pages)", "client.(*links)", "internal/peer.(*Pool)"} {
		if rest, ok := strings.CutPrefix(function, modulePath+f); ok && (rest == "" || strings.HasSuffix(f, ")")) {
			return true
		}
	}
	return false
}

const modulePath = "github.com/columbamq/columba/"

// parseTop reads the table of `go tool pprof -top`.
func parseTop(text string) []entry {
	var entries []entry
	_, table, _ := strings.Cut(text, "cum%\n")
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		flat, err1 := strconv.ParseFloat(strings.TrimSuffix(f[1], "%"), 64)
		all, err2 := strconv.ParseFloat(strings.TrimSuffix(f[4], "%"), 64)
		if err1 == nil && err2 == nil {
			entries = append(entries, entry{Function: strings.TrimSuffix(strings.Join(f[5:], " "), " (inline)"), Flat: flat, WithAll: all})
		}
	}
	return entries
}

// kinds of work, by prefixes of function names; the first that fits counts.
var kinds = []struct {
	what     string
	prefixes []string
}{
	{"system calls (socket, disk)", []string{"internal/runtime/syscall", "syscall.", "runtime.futex", "runtime.epoll", "runtime.write", "runtime.usleep", "runtime.nanosleep"}},
	{"copying and clearing memory", []string{"runtime.memmove", "runtime.memclr", "runtime.typedmemmove", "runtime.typedslicecopy"}},
	{"checksums", []string{"hash/crc32", "github.com/cockroachdb/crlib/crhash", "github.com/cockroachdb/pebble/v2/internal/crc"}},
	{"websocket masking", []string{"github.com/gorilla/websocket"}},
	{"clock", []string{"time.", "runtime.nanotime", "runtime.walltime", "runtime.vdso"}},
	{"allocation and garbage collection", []string{
		"runtime.mallocgc", "runtime.gc", "runtime.scan", "runtime.grey", "runtime.mark", "runtime.(*mspan)", "runtime.(*gc", "runtime.(*mcache", "runtime.(*mheap", "runtime.(*mcentral",
		"runtime.(*lfstack", "runtime.bgsweep", "runtime.sweep", "runtime.findObject", "runtime.spanOf", "runtime.wb", "runtime.bulkBarrier", "runtime.(*sweep", "runtime.newobject", "runtime.growslice",
		"runtime.(*limiter", "runtime.(*scav", "runtime.heap", "runtime.madvise", "runtime.tryDefer", "runtime.(*pageAlloc", "runtime.nextFree", "runtime.deduct", "runtime.typePointers", "runtime.(*unwinder",
		"gogo", "runtime.(*workbuf", "runtime.getempty", "runtime.(*wbBuf", "runtime.makeslice", "runtime.publicationBarrier", "runtime.mallocgcTiny", "runtime.memclrNoHeap",
	}},
	{"goroutines, channels and locks", []string{"runtime.", "sync.", "internal/sync", "sync/atomic", "internal/runtime/atomic", "context.", "internal/runtime"}},
	{"Pebble", []string{"github.com/cockroachdb"}},
	{"client", []string{modulePath + "client", modulePath + "internal/publish"}},
	{"records and frames", []string{modulePath + "wire"}},
	{"roles", []string{modulePath}},
}

// shares sums the time of functions by kind of work, largest first.
func shares(entries []entry) []share {
	sums := make(map[string]float64)
	for _, e := range entries {
		sums[kindOf(e.Function)] += e.Flat
	}
	out := make([]share, 0, len(sums))
	for what, percent := range sums {
		out = append(out, share{what, percent})
	}
	slices.SortFunc(out, func(a, b share) int {
		return int(1000*(b.Percent-a.Percent)) + strings.Compare(a.What, b.What)
	})
	return out
}

func kindOf(function string) string {
	for _, k := range kinds {
		for _, p := range k.prefixes {
			if strings.HasPrefix(function, p) {
				return k.what
			}
		}
	}
	return "other"
}
