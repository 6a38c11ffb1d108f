package cassandra

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

func TestLayout(t *testing.T) {
	for _, test := range []struct {
		table metadata.Table
		want  layout
	}{
		{metadata.Names, layout{"cas_row", byIndex}},
		{metadata.Queues, layout{"cas_row", byIndex}},
		{metadata.Namespaces, layout{"cas_row", byIndex}},
		{metadata.Operations, layout{"cas_row", byIndex}},
		{metadata.Settings, layout{"cas_row", byIndex}},
		{metadata.Groups, layout{"cas_shared", byPartition}},
		{metadata.Claims, layout{"cas_shared", byPartition}},
		{metadata.Seals, layout{"cas_row", unlisted}},
		{metadata.Heads, layout{"cas_row", unlisted}},
		{metadata.Cancels, layout{"cas_row", unlisted}},
		{metadata.Leases, layout{"cas_row", unlisted}},
		{metadata.Extents, layout{"put_row", byBucket}},
		{metadata.Audit, layout{"put_row", byPartition}},
		{metadata.Work, layout{"put_hint", byPartition}},
		{metadata.Assignments, layout{"put_progress", byBucket}},
		{metadata.Dones, layout{"put_progress", byBucket}},
		{metadata.Checkpoints, layout{"put_progress", byPartition}},
	} {
		if got := layoutOf(test.table); got != test.want {
			t.Errorf("%s: got %v, want %v", test.table.Name, got, test.want)
		}
	}
}

// Rows stay in their buckets for ever: these are written in Cassandra.
func TestBucketOf(t *testing.T) {
	for row, want := range map[string]int{"": 5, "a": 44, "queue/orders": 60, "a\xff": 41} {
		if got := bucketOf(row); got != want {
			t.Errorf("%q is in bucket %d, want %d", row, got, want)
		}
	}
	count := make([]int, buckets)
	for range 64_000 {
		count[bucketOf(core.NewID(time.Now()).String())]++
	}
	for b, n := range count {
		if n < 500 || n > 2000 {
			t.Errorf("bucket %d has %d of 64,000 rows", b, n)
		}
	}
}

func TestParts(t *testing.T) {
	row := func(partition string, size int) metadata.Row {
		return metadata.Row{Key: metadata.Key{Partition: partition, Row: "r"}, Value: make([]byte, size)}
	}
	var rows []metadata.Row
	for range 3 {
		rows = append(rows, row("a", metadata.MaxValue-10), row("b", 1))
	}
	for range 2 * batchRows {
		rows = append(rows, row("c", 1))
	}
	total := 0
	sizes := map[string][]int{}
	for _, part := range parts(rows, inTable(metadata.Work)) {
		p := part[0].Key.Partition
		for _, r := range part {
			if r.Key.Partition != p {
				t.Fatalf("a write is of partitions %s and %s", p, r.Key.Partition)
			}
		}
		total += len(part)
		sizes[p] = append(sizes[p], len(part))
	}
	if total != len(rows) || len(sizes["a"]) != 2 || len(sizes["b"]) != 1 || len(sizes["c"]) != 2 {
		t.Errorf("%d of %d rows in writes %v", total, len(rows), sizes)
	}
}

// Rows of a table with buckets are written bucket by bucket.
func TestParts_Buckets(t *testing.T) {
	var rows []metadata.Row
	for i := range 200 {
		rows = append(rows, metadata.Row{Key: metadata.Key{Partition: fmt.Sprint("p", i%2), Row: fmt.Sprint(i)}})
	}
	all := parts(rows, inTable(metadata.Extents))
	total := 0
	for _, part := range all {
		total += len(part)
		for _, r := range part {
			first := part[0].Key
			if r.Key.Partition != first.Partition || rowBucket(metadata.Extents, r.Key.Row) != rowBucket(metadata.Extents, first.Row) {
				t.Errorf("a write is of %v and %v", first, r.Key)
			}
		}
	}
	if total != len(rows) || len(all) != 2*rowBuckets {
		t.Errorf("%d rows in %d writes, want %d in %d", total, len(all), len(rows), 2*rowBuckets)
	}
}

// Put rows stay in their buckets for ever, and all rows of an extent are in one.
func TestRowBucket(t *testing.T) {
	for row, want := range map[string]int{"a": 4, "a/00000000000000000001": 4, "a/00000000000000000002/host/run": 4, "b": 5, "": 5} {
		for _, table := range []metadata.Table{metadata.Extents, metadata.Assignments, metadata.Dones} {
			if got := rowBucket(table, row); got != want {
				t.Errorf("%s %q is in bucket %d, want %d", table.Name, row, got, want)
			}
		}
		if got := rowBucket(metadata.Checkpoints, row); got != 0 {
			t.Errorf("checkpoint %q is in bucket %d, want none", row, got)
		}
	}
}

func TestSeconds(t *testing.T) {
	for ttl, want := range map[time.Duration]int{0: 0, -1: 0, 1: 1, time.Second: 1, time.Second + 1: 2, time.Hour: 3600, 2 * maxTTL: 630_720_000} {
		if got := seconds(ttl); got != want {
			t.Errorf("%s: got %d, want %d", ttl, got, want)
		}
	}
}

// Only rows that change by transactions are read by transactions.
func TestConsistencies(t *testing.T) {
	serial := gocql.Consistency(gocql.Serial)
	for c, want := range map[metadata.Consistency][3]gocql.Consistency{ // read of a CAS row, of a put row, write
		metadata.One:    {gocql.One, gocql.One, gocql.One},
		metadata.Quorum: {gocql.Quorum, gocql.Quorum, gocql.Quorum},
		metadata.Serial: {serial, gocql.Quorum, gocql.Quorum},
	} {
		if got := [3]gocql.Consistency{readAt(metadata.Seals, c), readAt(metadata.Work, c), writeAt(c)}; got != want {
			t.Errorf("%d: got %v, want %v", c, got, want)
		}
	}
}

func TestLocalFirst(t *testing.T) {
	const local = "127.0.0.2:0"
	p := newLocalFirst(local)
	for _, ip := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		p.AddHost((&gocql.HostInfo{}).SetConnectAddress(net.ParseIP(ip)))
	}
	second := map[string]bool{}
	for range 20 {
		var order []string
		next := p.Pick(&gocql.Query{})
		for h := next(); h != nil; h = next() {
			order = append(order, h.Info().ConnectAddress().String())
		}
		if len(order) != 3 || order[0] != "127.0.0.2" {
			t.Fatalf("hosts are asked in the order %v", order)
		}
		second[order[1]] = true
	}
	if len(second) != 2 {
		t.Errorf("the others are not asked in turn: %v", second)
	}
	if p := newLocalFirst(""); p.Pick(&gocql.Query{})() != nil {
		t.Error("a policy without hosts picks one")
	}
}

func TestConfig(t *testing.T) {
	good := Config{Local: "127.0.0.1:9", Hosts: []string{"127.0.0.2:9"}}
	cfg, err := good.withDefaults()
	if err != nil || cfg.Keyspace != "columba" || cfg.Connect != 2*time.Second || cfg.Request != 3*time.Second || strings.Join(cfg.Hosts, " ") != "127.0.0.1:9 127.0.0.2:9" {
		t.Errorf("defaults: %+v, %v", cfg, err)
	}
	for name, change := range map[string]func(*Config){
		"no host":            func(c *Config) { c.Local, c.Hosts = "", nil },
		"no port":            func(c *Config) { c.Hosts = []string{"127.0.0.1"} },
		"two ports":          func(c *Config) { c.Hosts = []string{"127.0.0.2:10"} },
		"keyspace with code": func(c *Config) { c.Keyspace = "a;DROP" },
		"negative timeout":   func(c *Config) { c.Request = -1 },
	} {
		c := good
		change(&c)
		if _, err := c.withDefaults(); core.CodeOf(err) != core.CodeBadArgument {
			t.Errorf("%s: got %v, want code %q", name, err, core.CodeBadArgument)
		}
	}
}

func inTable(t metadata.Table) func(metadata.Row) (metadata.Table, metadata.Row) {
	return func(r metadata.Row) (metadata.Table, metadata.Row) { return t, r }
}
