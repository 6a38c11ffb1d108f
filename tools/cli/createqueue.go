package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/node"
)

// createChunk is how many queues one request creates.
const createChunk = 500

// maxLine bounds a line of stdin that is to be a path or a token.
const maxLine = 64 << 10

func (a *app) createQueueCommand() *cobra.Command {
	var flags queueFlags
	var fromStdin bool
	cmd := &cobra.Command{
		Use: "queue PATH… | --from-stdin", Aliases: queueAliases, Short: "Create queues",
		Long: "Create one queue or many with the same settings. Queues that cannot be created are listed on stderr; the others are\n" +
			"created. With one path the exit code says why it failed; with many it is 1 when any failed. Names given as arguments are\n" +
			"checked first: when one of them is wrong no queue is created and the exit code is 2.\n\n" +
			"With fewer stores than --replicas, but at least --min-replicas, the queue is created, and its messages get the missing copies\n" +
			"when there are more stores.",
		Example: "  columba create queue /demo/trips --max-message 4MiB\n" +
			"  seq -f /demo/q%g 1000 | columba create queue --from-stdin",
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&fromStdin, "from-stdin", false, "read paths from stdin, one per line")
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		spec, err := flags.spec(true)
		switch {
		case err != nil:
			return err
		case fromStdin == (len(args) > 0):
			return core.Errorf(core.CodeBadArgument, "give either paths or --from-stdin; see `%s --help`", cmd.CommandPath())
		case len(args) == 1:
			return a.createQueue(ctx, spec, args[0])
		}
		if fromStdin {
			return a.createQueues(ctx, spec, a.stdin)
		}
		if err := a.checkPaths(args); err != nil {
			return err
		}
		return a.createQueues(ctx, spec, strings.NewReader(strings.Join(args, "\n")))
	})
	return cmd
}

// checkPaths lists the paths that no queue can have, before any queue is created.
func (a *app) checkPaths(paths []string) error {
	bad := 0
	for _, path := range paths {
		if _, err := core.ParseQueuePath(path); err != nil {
			bad++
			a.complain(clip(path), err)
		}
	}
	if bad == 0 {
		return nil
	}
	a.say("no queue was created: %d of %d names are wrong", bad, len(paths))
	return exitError{core.ExitUsage}
}

func (a *app) createQueue(ctx context.Context, spec *pb.QueueSpec, path string) error {
	path, err := core.ParseQueuePath(path)
	if err != nil {
		return err
	}
	spec.Path = path
	q, err := change(ctx, a, a.admin().CreateQueue, &pb.CreateQueueRequest{Spec: spec})
	if err != nil {
		return err
	}
	a.noteFewStores(ctx, q)
	if a.format == formatTable {
		s := q.GetSpec()
		return a.made("queue %s is created: %s, %s, %s", s.GetPath(), s.GetConsistency(), plural(int64(s.GetReplicas()), "replica"), s.GetDurability())
	}
	return a.printer().object(queueFields(q))
}

// createQueues creates a queue for every line of input, chunk by chunk.
func (a *app) createQueues(ctx context.Context, spec *pb.QueueSpec, input io.Reader) error {
	admin, out := a.admin(), a.printer()
	bar := a.progress("queues", 0)
	defer bar.finish()
	var made *pb.Queue // any: they have the same settings
	failed := 0
	fail := func(path string, err error) {
		failed++
		a.complain(path, err)
	}
	send := func(specs []*pb.QueueSpec) error {
		res, err := change(ctx, a, admin.CreateQueues, &pb.CreateQueuesRequest{Specs: specs})
		if err != nil {
			return err
		}
		if len(res.GetResults()) != len(specs) {
			return core.Errorf(core.CodeInternal, "asked for %d queues, the server answered about %d", len(specs), len(res.GetResults()))
		}
		for i, r := range res.GetResults() {
			if r.GetError() != nil {
				fail(specs[i].GetPath(), convert.ErrorFromProto(r.GetError()))
			} else {
				made = r.GetQueue()
				out.item(queueFields(made))
			}
		}
		bar.add(len(specs))
		return out.err
	}
	err := eachPath(input, createChunk, fail, func(paths []string) error {
		specs := make([]*pb.QueueSpec, len(paths))
		for i, p := range paths {
			specs[i] = proto.CloneOf(spec)
			specs[i].Path = p
		}
		return send(specs)
	})
	bar.finish()
	if cerr := out.close(); err == nil {
		err = cerr
	}
	if made != nil {
		a.noteFewStores(ctx, made)
	}
	if err != nil || failed > 0 {
		a.say("%s created, %d failed", plural(out.items, "queue"), failed)
	}
	if err == nil && failed > 0 {
		err = errFailed
	}
	return err
}

// eachPath hands the valid paths of input to use in chunks, and the others to bad. Empty lines are skipped.
func eachPath(input io.Reader, chunk int, bad func(string, error), use func([]string) error) error {
	scanner := bufio.NewScanner(input)
	scanner.Buffer(nil, maxLine)
	var paths []string
	lines := 0
	for ; scanner.Scan(); lines++ {
		line := strings.TrimSuffix(scanner.Text(), "\r")
		if line == "" {
			continue
		}
		path, err := core.ParseQueuePath(line)
		if err != nil {
			bad(clip(line), err)
			continue
		}
		if paths = append(paths, path); len(paths) == chunk {
			if err := use(paths); err != nil {
				return err
			}
			paths = paths[:0]
		}
	}
	if len(paths) > 0 {
		if err := use(paths); err != nil {
			return err
		}
	}
	return scanError("paths", lines, scanner.Err())
}

// scanError is the error of a scanner that has read so many lines; nil for none.
func scanError(what string, lines int, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bufio.ErrTooLong):
		return core.Errorf(core.CodeBadArgument, "line %d has more than %d bytes; give one of the %s a line", lines+1, maxLine, what)
	}
	return core.Errorf(core.CodeBadArgument, "%s cannot be read: %w", what, err)
}

// stores are the hosts that are there and store messages; nil when nobody says so.
func (a *app) stores(ctx context.Context) []string {
	list, err := ask(ctx, a, a.admin().ListHosts, &pb.ListHostsRequest{})
	if err != nil {
		return nil
	}
	ids := []string{}
	for _, h := range list.GetHosts() {
		if slices.Contains(h.GetRoles(), node.RoleStore) && h.GetSince() == nil {
			ids = append(ids, h.GetHost())
		}
	}
	return ids
}

// noteFewStores says that a queue asks for more copies than there are stores, which is allowed as long as there are
// min_replicas.
func (a *app) noteFewStores(ctx context.Context, q *pb.Queue) {
	want := int(q.GetSpec().GetReplicas())
	if want <= 1 {
		return // one store is enough, and the servers' own refusals say when there is none
	}
	if have := len(a.stores(ctx)); have > 0 && have < want {
		a.say("note: %s asks for %d copies and the cluster has %s now: messages get %d, and the missing copies when there are more stores",
			q.GetSpec().GetPath(), want, plural(have, "store"), have)
	}
}
