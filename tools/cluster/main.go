// Command cluster runs a whole Columba cluster on this machine, in the foreground: three stores, two input hosts, two
// output hosts and a controller with the frontend, or three of these if the metadata are in Cassandra. Each is a
// process of its own. SIGINT, SIGTERM and SIGHUP stop them in order; on Linux they drain also when this process is
// killed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/columbamq/columba/internal/lifecycle"
)

type options struct {
	program  string
	port     int
	data     string
	metadata string // URL of a Cassandra cluster; "" = embedded
	// temporary: data is removed when the cluster stops.
	temporary bool
	flags     []string // more of `columba serve`, for every process
}

// init keeps main on the main thread, which starts the processes: see childAttributes.
func init() { runtime.LockOSThread() }

func main() {
	var o options
	flag.StringVar(&o.program, "program", "bin/columba", "the columba `binary`")
	flag.IntVar(&o.port, "port", 4922, "first of eight `ports`, or ten with -metadata; gossip takes those that are 1000 higher")
	flag.StringVar(&o.metadata, "metadata", "", "`URL` of a Cassandra cluster that has the schema; three controllers use it (default: one controller with embedded metadata)")
	flag.StringVar(&o.data, "data", "", "`directory` of the data and logs, kept (default: a temporary one, removed)")
	flag.Parse()
	o.flags = flag.Args()
	ctx, stop := lifecycle.Signals(context.Background())
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run starts the cluster, waits for ctx's end and stops it.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	if o.data == "" {
		if o.data, err = os.MkdirTemp("", "columba-cluster-"); err != nil {
			return err
		}
		o.temporary = true
		defer func() {
			if err == nil {
				err = os.RemoveAll(o.data)
			} else { // the logs tell why
				err = fmt.Errorf("%w\nthe data and the logs are left in %s", err, o.data)
			}
		}()
	}
	if err := os.MkdirAll(o.data, 0o755); err != nil {
		return err
	}
	c := newCluster(o)
	defer func() { err = errors.Join(err, c.stop(out)) }()
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	began := time.Now()
	if err := c.start(starting); err != nil {
		if ctx.Err() != nil {
			return nil // the user gave up
		}
		return err
	}
	c.describe(out, time.Since(began))
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-c.ended:
			c.reportEnd(out, m)
		}
	}
}

// reportEnd says that a member has ended by itself, and how to go on.
func (c *cluster) reportEnd(out io.Writer, m *member) {
	fmt.Fprintf(out, `%s (%s, process %d) has ended: %s. Its log is %s. To start it again, in another terminal:
  %s
This program does not stop that process: press Ctrl-C there first, then here%s.
`, m.name, m.host, m.pid(), m.cmd.ProcessState, m.log, strings.Join(m.cmd.Args, " "), c.o.aftermath())
}

// aftermath is what the end of the cluster does to the data.
func (o options) aftermath() string {
	if o.temporary {
		return ", which deletes the data"
	}
	return ""
}

// describe says what runs where, and what to do with it.
func (c *cluster) describe(out io.Writer, took time.Duration) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROCESS\tPID\tHOST\tADDRESS\tGOSSIP\tDATA")
	for _, m := range c.members {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", m.name, m.pid(), m.host, m.addr, m.gossip, m.data)
	}
	w.Flush()
	program, addr := c.o.program, ""
	if a := strings.Join(c.frontends(), ","); a != "127.0.0.1:4922" {
		addr = " --addr " + a
	}
	if !filepath.IsAbs(program) && !strings.Contains(program, "/") {
		program = "./" + program
	}
	fmt.Fprintf(out, `
The cluster is ready at %[1]s after %[2]s. In another terminal:

  %[3]s%[4]s create queue /demo/trips
  %[3]s%[4]s create group /demo/trips billing --start earliest
  seq 1 100000 | %[3]s%[4]s publish /demo/trips --rate 5000 &
  %[3]s%[4]s consume /demo/trips billing --idle 30s | sort -nu | wc -l

Meanwhile you can kill -9 %[6]s: this terminal prints the command that starts it again.
%[7]sCtrl-C here stops all processes%[5]s.

`, c.members[0].addr, took.Round(10*time.Millisecond), program, addr, c.o.aftermath(), c.o.victims(), c.o.nodes(program))
}

// nodes says where the metadata are, if they are in Cassandra.
func (o options) nodes(program string) string {
	if o.metadata == "" {
		return ""
	}
	return fmt.Sprintf("The metadata are in %[1]s\nThe nodes there: %[2]s schema show %[1]s\n", o.metadata, program)
}

// victims are the processes that can be killed, and what the others then lack.
func (o options) victims() string {
	if o.metadata != "" {
		return "any of these processes"
	}
	return "any of these processes; without the controller new clients and commands wait or fail"
}
