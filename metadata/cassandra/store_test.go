package cassandra

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/metadatatest"
	realnode "github.com/columbamq/columba/test/cassandra"
)

var nodes realnode.Nodes

func TestMain(m *testing.M) { os.Exit(nodes.Main(m)) }

var (
	schema    sync.Once
	schemaErr error
	opened    atomic.Int64
	keyspace  = fmt.Sprintf("test_%d", time.Now().UnixNano())
)

// addressEnv names a node that runs already, "host:port".
const addressEnv = "COLUMBA_CASSANDRA_ADDRESS"

// addresses are those of the nodes of this binary, or of the one that runs already.
func addresses(t *testing.T) (all []string) {
	t.Helper()
	if address := os.Getenv(addressEnv); address != "" {
		return []string{address}
	}
	for _, node := range nodes.Start(t) {
		all = append(all, node.Address())
	}
	return all
}

// config is for the nodes of this binary, with the schema applied: a row is on each of them. They take turns at being
// the local one.
func config(t *testing.T) Config {
	t.Helper()
	all := addresses(t)
	cfg := Config{
		Local: all[int(opened.Add(1))%len(all)], Hosts: all, Keyspace: keyspace,
		Replication: map[string]int{"datacenter1": len(all)}, Request: 10 * time.Second, Connect: 10 * time.Second,
	}
	schema.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		schemaErr = Apply(ctx, cfg)
	})
	if schemaErr != nil {
		t.Fatal(schemaErr)
	}
	return cfg
}

// newPrefix is of the names of tables that are empty.
func newPrefix() string { return fmt.Sprintf("%d.%d/", time.Now().UnixNano(), opened.Add(1)) }

// open makes a store that is empty: its tables have names of their own. Stores share a session to each node, since new
// ones cost the node more than what most tests do with them.
func open(t *testing.T) *Store {
	t.Helper()
	cfg := config(t)
	shared.Lock()
	defer shared.Unlock()
	first := shared.stores[cfg.Local]
	if first == nil {
		first = openPrefix(t, cfg, "")
		shared.stores[cfg.Local] = first
	}
	s := newStore(kept{first.session}, first.cfg)
	s.prefix = newPrefix()
	return s
}

// shared are the stores whose sessions others use, by their local nodes. They are never closed.
var shared = struct {
	sync.Mutex
	stores map[string]*Store
}{stores: map[string]*Store{}}

// kept is a session that stays open.
type kept struct{ session }

func (kept) close() {}

func openPrefix(t *testing.T, cfg Config, prefix string) *Store {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.prefix = prefix
	return s
}

// forSuite is a store as the suite wants it, on however many nodes.
func forSuite(t *testing.T, s metadata.Store) metadata.Store {
	if len(addresses(t)) > 1 {
		return metadatatest.AtQuorum{Store: s}
	}
	return s
}

func TestStore(t *testing.T) {
	var last *Store
	metadatatest.Run(t,
		func(t *testing.T) metadata.Store {
			last = open(t)
			return forSuite(t, last)
		},
		metadatatest.WithReopen(func(t *testing.T, s metadata.Store) metadata.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			last = openPrefix(t, config(t), last.prefix)
			return forSuite(t, last)
		}))
}

// samePuts are tests of rows that are the same in each run of the suite.
var samePuts = metadatatest.Without("PutLatestWins", "PutEqualTimes", "RemoveShadows", "TTL", "PutAll", "HintShards", "MoveHints",
	"PutLatestWinsSlow", "RemoveShadowsSlow", "PutAllSlow")

// TestStore_Shared runs the suite on rows that share a partition in Cassandra, and on put rows in buckets.
func TestStore_Shared(t *testing.T) {
	metadatatest.Run(t, func(t *testing.T) metadata.Store { return forSuite(t, renamed{open(t)}) }, metadatatest.Without("HintShards", "MoveHints"))
}

// renamed keeps the rows of the suite's tables as those of tables that are laid out in another way.
type renamed struct{ *Store }

func rename(t metadata.Table) metadata.Table {
	name := map[string]string{"test-cas": metadata.Groups.Name, "test-cas-p": metadata.Claims.Name, "test-put": metadata.Extents.Name}[t.Name]
	if name == "" {
		return t
	}
	return metadata.Table{Name: name, Rule: t.Rule}
}

func (r renamed) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	return r.Store.Get(ctx, rename(t), k, c)
}

func (r renamed) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	return r.Store.GetRows(ctx, rename(t), keys, c)
}

func (r renamed) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	return r.Store.List(ctx, rename(t), partition, after, limit, c)
}

func (r renamed) ListWhere(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency, wanted func(string) bool) ([]metadata.Row, bool, error) {
	return r.Store.ListWhere(ctx, rename(t), partition, after, limit, c, wanted)
}

func (r renamed) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	return r.Store.Insert(ctx, rename(t), k, value)
}

func (r renamed) InsertVersion(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) (metadata.Version, error) {
	return r.Store.InsertVersion(ctx, rename(t), k, value)
}

func (r renamed) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	return r.Store.Update(ctx, rename(t), k, old, value, ttl)
}

func (r renamed) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	return r.Store.Delete(ctx, rename(t), k, old)
}

func (r renamed) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	return r.Store.Put(ctx, rename(t), k, value, at, ttl, c)
}

func (r renamed) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	return r.Store.PutAll(ctx, rename(t), rows, c)
}

func (r renamed) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	return r.Store.Remove(ctx, rename(t), k, at, c)
}

func (r renamed) Watch(ctx context.Context, t metadata.Table, partition string, changed func()) error {
	return r.Store.Watch(ctx, rename(t), partition, changed)
}
