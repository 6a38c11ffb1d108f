package cli

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata/cassandra"
)

// fakeCassandra is a Cassandra of three nodes whose keyspaces say in their names what is wrong with them.
type fakeCassandra struct {
	applied map[string]bool
}

func (f *fakeCassandra) schemas() schemas { return schemas{f.apply, f.describe} }

var threeOfThree = map[string]string{"class": "NetworkTopologyStrategy", "dc1": "3"}

func (f *fakeCassandra) apply(ctx context.Context, cfg cassandra.Config, changed func()) (cassandra.Applied, error) {
	if _, ok := ctx.Deadline(); !ok {
		return cassandra.Applied{}, core.Errorf(core.CodeInternal, "no deadline")
	}
	changed()
	out := cassandra.Applied{Keyspace: cfg.Keyspace, Replication: maps.Clone(threeOfThree), From: 2, To: 2}
	switch cfg.Keyspace {
	case "newer":
		return out, core.Errorf(core.CodeVersion, "keyspace newer has schema 9, this binary knows 2; use a newer binary")
	case "down":
		return out, core.Errorf(core.CodeUnavailable, "node a does not answer; start it")
	case "old":
		out.From = 1
	case "older":
		out.From = 0
	}
	out.Differs = f.applied[cfg.Keyspace] && cfg.Replicas > 0 && cfg.Replicas != 3
	if strings.HasPrefix(cfg.Keyspace, "fresh") && !f.applied[cfg.Keyspace] {
		f.applied[cfg.Keyspace], out.Created, out.From = true, true, 0
		if cfg.Replicas > 0 {
			out.Replication["dc1"] = fmt.Sprint(cfg.Replicas)
		}
		for centre, n := range cfg.Replication {
			delete(out.Replication, "dc1")
			out.Replication[centre] = fmt.Sprint(n)
		}
	}
	return out, nil
}

func (f *fakeCassandra) describe(_ context.Context, cfg cassandra.Config) (cassandra.SchemaInfo, error) {
	out := cassandra.SchemaInfo{Keyspace: cfg.Keyspace, Newest: 2}
	if cfg.Keyspace == "away" {
		return out, core.Errorf(core.CodeUnavailable, "no node answers; start one")
	}
	for i, state := range []string{"up", "up", "up"} {
		n := cassandra.NodeInfo{Address: fmt.Sprintf("10.0.0.%d:9042", i+1), DataCentre: "dc1", Rack: fmt.Sprintf("rack%d", i+1), Up: state == "up",
			Version: "5.0.9", Schema: "c9ac47d1-99bc-3bfc-b318-8f89d1c81f7e", CommitLogSync: "batch"}
		if cfg.Keyspace == "lone" && i > 0 || cfg.Keyspace == "sick" && i == 2 {
			n = cassandra.NodeInfo{Address: n.Address, DataCentre: n.DataCentre, Rack: n.Rack}
		}
		if cfg.Keyspace == "sick" && i == 1 {
			n.Version, n.CommitLogSync, n.Schema = "5.0.8", "periodic", "8f89d1c8-99bc-3bfc-b318-8f89d1c81f7e"
		}
		out.Nodes = append(out.Nodes, n)
	}
	if cfg.Keyspace == "missing" {
		return out, core.Errorf(core.CodeNotFound, "keyspace missing does not exist; create it with `columba schema apply`")
	}
	out.Replication = threeOfThree
	if cfg.Keyspace == "lone" {
		return out, core.Errorf(core.CodeUnavailable, "too few replicas answer; start more nodes")
	}
	out.Version = 2
	out.Cluster, _ = core.ParseID("01890a5d-ac96-774b-bcce-b302099a8057")
	if cfg.Keyspace == "empty" {
		out.Version, out.Cluster = 0, core.ID{}
		out.Refused = core.Errorf(core.CodeVersion, "keyspace empty has no schema; run `columba schema apply` first")
	}
	return out, nil
}

// TestTranscripts_Schema runs the command lines of a file without Cassandra.
func TestTranscripts_Schema(t *testing.T) {
	fake := &fakeCassandra{applied: map[string]bool{}}
	datadriven.RunTest(t, filepath.Join("testdata", "schema.txt"), func(t *testing.T, d *datadriven.TestData) string {
		var args []string
		for _, a := range d.CmdArgs {
			args = append(args, unquoted(t, d, a.String()))
		}
		var stdout, stderr bytes.Buffer
		a := &app{stdout: &stdout, stderr: &stderr, terminal: isTerminal, width: columns, schemas: fake.schemas()}
		code := a.main(t.Context(), args)
		return seen(stdout.String(), stderr.String(), code)
	})
}

// seen is what a user sees of a command.
func seen(stdout, stderr string, code int) string {
	var out strings.Builder
	for _, part := range []struct{ mark, text string }{{"", stdout}, {"! ", stderr}} {
		for line := range strings.Lines(part.text) {
			out.WriteString(part.mark + strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	fmt.Fprintf(&out, "→ %d\n", code)
	return out.String()
}

// TestSchemaApply_Limits: the command has two minutes, or what --timeout says.
func TestSchemaApply_Limits(t *testing.T) {
	for _, test := range []struct {
		args []string
		want time.Duration
	}{
		{nil, applyTimeout}, {[]string{"--timeout", "5m"}, 5 * time.Minute}, {[]string{"--timeout", "30s"}, 30 * time.Second},
	} {
		var left time.Duration
		a := &app{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, terminal: isTerminal, width: columns, schemas: schemas{apply: func(ctx context.Context, _ cassandra.Config, _ func()) (cassandra.Applied, error) {
			until, _ := ctx.Deadline()
			left = time.Until(until)
			return cassandra.Applied{}, core.Errorf(core.CodeDeadline, "too late; hurry")
		}}}
		if code := a.main(t.Context(), append([]string{"schema", "apply", "cassandra://a"}, test.args...)); code != core.ExitUnavailable {
			t.Errorf("%v: exit code %d", test.args, code)
		}
		if left > test.want || left < test.want-10*time.Second {
			t.Errorf("%v: the limit is %s, want %s", test.args, left, test.want)
		}
	}
}
