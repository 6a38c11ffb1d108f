// Package demo owns the main job that shows Columba at work: every file of a tree becomes a task, two groups of workers
// compute on it, processes are killed on the way, and the result is compared with a direct walk.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// Names of the demo's queues and groups.
const (
	filesQueue   = "/demo/files"
	resultsQueue = "/demo/results"
	hashGroup    = "hash"
	parseGroup   = "parse"
	collectGroup = "collect"
)

// Options of a run.
type Options struct {
	Dir     string    // tree to work on; "" for src and test of the Go installation
	Program string    // the columba binary, for the server and the worker process
	Data    string    // the server's data directory; "" for a temporary one that is removed
	Out     io.Writer // the report
	Log     io.Writer // what happens meanwhile
	// Progress starts a bar that counts to total; nil: no bars. add may be called from any goroutine.
	Progress func(name string, total int) (add func(n int), end func())
	Format   string // of the report: table or json
}

const (
	lockTimeout   = 5 * time.Second // short, so that what killed processes held comes back within the demo
	maxDeliveries = 5
	hashWorkers   = 32 // they mostly wait for their results to be durable
	parseWorkers  = 4
	patience      = 90 * time.Second // without any progress
)

// run is one demo under way.
type run struct {
	o       Options
	server  *server
	c       *client.Client
	files   []string // relative paths, all regular files
	results *collector
	parsed  *counter // tasks the parse group acked
	report  Report
}

// Run does the whole job. Any difference between what the workers found and a direct walk is an error.
func Run(ctx context.Context, o Options) (err error) {
	o.Log = &sharedLog{w: o.Log}
	if o.Data == "" {
		if o.Data, err = os.MkdirTemp("", "columba-demo-"); err != nil {
			return fmt.Errorf("make a data directory: %w", err)
		}
		defer os.RemoveAll(o.Data)
	}
	roots := []string{"."}
	if o.Dir == "" {
		if o.Dir, err = goRoot(ctx); err != nil {
			return err
		}
		roots = []string{"src", "test"}
	}
	r := &run{o: o, results: newCollector(), parsed: &counter{}}
	if r.files, err = listFiles(o.Dir, roots); err != nil {
		return err
	}
	if len(r.files) == 0 {
		return core.Errorf(core.CodeBadArgument, "directory %s holds no regular file", o.Dir)
	}
	r.logf("%d files under %s", len(r.files), o.Dir)
	if r.server, err = startServer(ctx, o.Program, o.Data, o.Log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.server.stop()) }()
	if r.c, err = client.Dial(ctx, r.server.addr, client.WithName("demo")); err != nil {
		return err
	}
	defer r.c.Close()
	if err := r.createQueues(ctx); err != nil {
		return err
	}
	r.report.began = time.Now()
	if err := r.work(ctx); err != nil {
		return err
	}
	r.report.Seconds = time.Since(r.report.began).Seconds()
	if err := r.verify(ctx); err != nil {
		return err
	}
	return r.report.write(o.Out, o.Format)
}

func (r *run) createQueues(ctx context.Context) error {
	admin := r.c.Admin()
	for _, path := range []string{filesQueue, resultsQueue} {
		if _, err := admin.CreateQueue(ctx, core.QueueSpec{Path: path}); err != nil {
			return err
		}
	}
	for _, g := range []core.GroupSpec{
		{Queue: filesQueue, Name: hashGroup, MaxDeliveries: 100},
		{Queue: filesQueue, Name: parseGroup, MaxDeliveries: maxDeliveries, Breaker: core.BreakerOff}, // its attempts are counted to the letter
		{Queue: resultsQueue, Name: collectGroup, MaxDeliveries: 100},
	} {
		g.Start.Mode = core.StartEarliest
		g.LockTimeout = lockTimeout
		if _, err := admin.CreateGroup(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// work runs producer, workers and the two murders until every result is in and the groups are drained.
func (r *run) work(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	workers, wctx := errgroup.WithContext(ctx)
	workers.Go(func() error { return r.hash(wctx) })
	workers.Go(func() error { return r.parse(wctx) })
	workers.Go(func() error { return r.collect(wctx) })

	jobs, jctx := errgroup.WithContext(wctx)
	jobs.Go(func() error { return r.produce(jctx) })
	jobs.Go(func() error { return r.killWorker(jctx) })
	jobs.Go(func() error { return r.killServer(jctx) })
	err := jobs.Wait()
	if err == nil {
		err = r.drained(wctx)
	}
	cancel()
	if werr := workers.Wait(); werr != nil && err == nil {
		err = werr
	}
	return err
}

// produce publishes one task per file.
func (r *run) produce(ctx context.Context) error {
	pub, err := r.c.Publisher(ctx, filesQueue)
	if err != nil {
		return err
	}
	add, end := r.start("publish", len(r.files))
	defer end()
	var failed firstError
	for _, f := range r.files {
		err := pub.PublishAsync(ctx, client.Message{Body: []byte(f)}, func(_ client.Receipt, err error) {
			if err != nil {
				failed.set(fmt.Errorf("publish %s: %w", f, err))
			}
			add(1)
		})
		if err != nil {
			return err
		}
	}
	if err := pub.Close(ctx); err != nil {
		return err
	}
	r.report.Published = len(r.files)
	r.report.PublishSeconds = time.Since(r.report.began).Seconds()
	return failed.get()
}

// killWorker runs a worker of the hash group as a process of its own and kills it half way, without warning.
func (r *run) killWorker(ctx context.Context) error {
	w, err := startWorker(r.o.Program, r.server.addr, r.o.Dir, r.o.Log)
	if err != nil {
		return err
	}
	if err := r.results.wait(ctx, len(r.files)/2); err != nil {
		return errors.Join(err, w.kill())
	}
	r.logf("kill -9 of worker process %d, with %d of %d results in", w.pid(), r.results.distinct(), len(r.files))
	r.report.WorkersKilled++
	return w.kill()
}

// killServer kills the server at a quarter of the results and starts it again on the same directory and port.
func (r *run) killServer(ctx context.Context) error {
	if err := r.results.wait(ctx, len(r.files)/4); err != nil {
		return err
	}
	r.logf("kill -9 of server process %d, with %d of %d results in", r.server.pid(), r.results.distinct(), len(r.files))
	began := time.Now()
	if err := r.server.restart(ctx); err != nil {
		return err
	}
	r.report.ServersKilled++
	r.report.RestartSeconds = time.Since(began).Seconds()
	r.logf("server is ready again after %.2f s", r.report.RestartSeconds)
	return nil
}

// drained waits for the last results and until the groups have nothing left.
func (r *run) drained(ctx context.Context) error {
	if err := r.results.wait(ctx, len(r.files)); err != nil {
		return err
	}
	last, quiet := uint64(0), time.Now()
	for {
		depths, err := r.c.Admin().Depth(ctx, filesQueue, "")
		if err != nil {
			return err
		}
		left := uint64(0)
		for _, d := range depths {
			left += d.Ready + d.InFlight + d.Delayed + uint64(d.UnknownExtents)
		}
		switch {
		case left == 0:
			return nil
		case left != last:
			last, quiet = left, time.Now()
		case time.Since(quiet) > patience:
			return core.Errorf(core.CodeDeadline, "%d tasks are stuck: %+v", left, depths)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (r *run) start(name string, total int) (add func(int), end func()) {
	if r.o.Progress == nil {
		return func(int) {}, func() {}
	}
	return r.o.Progress(name, total)
}

// sharedLog lets the demo and its processes write whole pieces to one log.
type sharedLog struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *sharedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

func (r *run) logf(format string, args ...any) {
	fmt.Fprintf(r.o.Log, "demo: "+format+"\n", args...)
}

// listFiles walks the roots below dir for regular files. A root that is not there is passed over: some Go installations
// come without their tests.
func listFiles(dir string, roots []string) ([]string, error) {
	var out []string
	for _, root := range roots {
		base := filepath.Join(dir, root)
		err := filepath.WalkDir(base, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				if path == base && root != "." && errors.Is(err, os.ErrNotExist) {
					return nil
				}
				return err
			}
			if !d.Type().IsRegular() {
				return nil
			}
			rel, err := filepath.Rel(dir, path)
			out = append(out, filepath.ToSlash(rel))
			return err
		})
		if err != nil {
			return nil, core.Errorf(core.CodeBadArgument, "directory %s cannot be walked: %w; name another with --dir", base, err)
		}
	}
	return out, nil
}

// goRoot is where the Go installation lies.
func goRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", core.Errorf(core.CodeNotFound, "ask go for its tree (name another with --dir): %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
