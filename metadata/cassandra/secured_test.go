package cassandra

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	realnode "github.com/columbamq/columba/test/cassandra"
)

// secured is a test on a node that asks for TLS and a user.
type secured struct {
	realnode.Secured
	log  *slog.Logger  // of all stores, with all that the driver says
	said *lockedBuffer // what log was told
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.Lock()
	defer b.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.Lock()
	defer b.Unlock()
	return b.buffer.String()
}

// secret is in each password, but for that of the first user.
const secret = "pass-w0rd"

// config is what ParseURL makes of a URL like that of an operator; authority "": without TLS.
func (s *secured) config(t *testing.T, user, password, authority string) Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := Scheme + user + "@" + s.Address() + "/secured?password-file=" + file
	if authority != "" {
		url += "&tls=" + authority
	}
	cfg, err := ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Request, cfg.Connect = 10*time.Second, 10*time.Second
	cfg.Log = s.log
	return cfg
}

// execute changes users and rights as the first user.
func (s *secured) execute(t *testing.T, statements ...string) {
	t.Helper()
	session, err := s.config(t, "cassandra", "cassandra", s.Authority).connect(10 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for _, text := range statements {
		if err := session.Query(text).WithContext(t.Context()).Exec(); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// TestCassandra_TLSAndUser: a store works on a node that asks for TLS and a user, with the rights that docs/operations
// says. Where something is wrong, Open says so at once, and nothing tells a password.
func TestCassandra_TLSAndUser(t *testing.T) {
	said := &lockedBuffer{}
	s := &secured{nodes.Secured(t), slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug})), said}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s.execute(t,
		"CREATE ROLE admin WITH LOGIN = true AND PASSWORD = '"+secret+"'",
		"GRANT CREATE ON ALL KEYSPACES TO admin",
	)
	if err := Apply(ctx, s.config(t, "admin", secret, s.Authority)); err != nil {
		t.Fatal(err)
	}
	s.execute(t,
		"CREATE ROLE columba WITH LOGIN = true AND PASSWORD = '"+secret+"'",
		"GRANT SELECT, MODIFY ON KEYSPACE secured TO columba",
		"GRANT SELECT ON TABLE system_views.settings TO columba",
		"CREATE ROLE reader WITH LOGIN = true AND PASSWORD = '"+secret+"'",
		"GRANT SELECT ON KEYSPACE secured TO reader",
		"CREATE ROLE stranger WITH LOGIN = true AND PASSWORD = '"+secret+"'",
	)
	t.Run("works", func(t *testing.T) { s.works(t) })
	t.Run("no right to change", func(t *testing.T) { s.mayNotChange(t) })

	noUser := s.config(t, "columba", secret, s.Authority)
	noUser.Username, noUser.Password = "", ""
	foreignName := s.config(t, "columba", secret, s.Authority)
	foreignName.TLS = &tls.Config{RootCAs: foreignName.TLS.RootCAs, ServerName: "cassandra.example.org"}
	for name, test := range map[string]struct {
		cfg  Config
		text string
	}{
		"a foreign authority":      {s.config(t, "columba", secret, s.Foreign), "unknown authority"},
		"another name":             {foreignName, "cassandra.example.org"},
		"no TLS":                   {s.config(t, "columba", secret, ""), "wants TLS"},
		"a wrong password":         {s.config(t, "columba", secret+"?", s.Authority), "check the user in the URL"},
		"no such user":             {s.config(t, "nobody", secret, s.Authority), "check the user in the URL"},
		"no user":                  {noUser, "name a user in the URL"},
		"no right to the keyspace": {s.config(t, "stranger", secret, s.Authority), "grant the user SELECT and MODIFY"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			store, err := Open(ctx, test.cfg)
			if err == nil {
				store.Close()
			}
			if core.CodeOf(err) != core.CodeBadArgument || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want code %q and %q", err, core.CodeBadArgument, test.text)
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("it took %s", took)
			}
			s.tellsNoPassword(t, err)
		})
	}
	other := s.config(t, "stranger", secret, s.Authority)
	other.Keyspace = "other"
	for _, cfg := range []Config{other, s.config(t, "stranger", secret, s.Authority)} {
		err := Apply(ctx, cfg)
		if core.CodeOf(err) != core.CodeBadArgument {
			t.Errorf("apply the schema of %s without a right: got %v, want code %q", cfg.Keyspace, err, core.CodeBadArgument)
		}
		s.tellsNoPassword(t, err)
	}
	if strings.Contains(s.said.String(), secret) {
		t.Errorf("a log tells a password:\n%s", s.said.String())
	}
}

// works checks that rows are put, read, and changed by compare-and-set, and that nothing is warned of.
func (s *secured) works(t *testing.T) {
	store := openPrefix(t, s.config(t, "columba", secret, s.Authority), "")
	defer store.Close()
	key, put := metadata.NameKey("a"), metadata.Key{Partition: "q", Row: "a"}
	if err := store.Insert(t.Context(), metadata.Names, key, []byte("1")); err != nil {
		t.Fatal(err)
	}
	row, err := store.Get(t.Context(), metadata.Names, key, metadata.Serial)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Update(t.Context(), metadata.Names, key, row.Version, []byte("2"), 0); err != nil {
		t.Error(err)
	}
	if err := store.Update(t.Context(), metadata.Names, key, row.Version, []byte("3"), 0); core.CodeOf(err) != core.CodeConflict {
		t.Errorf("a change of an old version: got %v, want code %q", err, core.CodeConflict)
	}
	if err := store.Put(t.Context(), metadata.Extents, put, []byte("4"), time.Unix(1, 0), 0, metadata.One); err != nil {
		t.Error(err)
	}
	if row, err := store.Get(t.Context(), metadata.Extents, put, metadata.Quorum); err != nil || string(row.Value) != "4" {
		t.Errorf("got %q, %v", row.Value, err)
	}
	if strings.Contains(s.said.String(), "level=WARN") {
		t.Errorf("a warning:\n%s", s.said.String())
	}
}

// mayNotChange checks that a change without the right fails, and has no unknown outcome. The user may not read settings
// either, which is warned of.
func (s *secured) mayNotChange(t *testing.T) {
	store := openPrefix(t, s.config(t, "reader", secret, s.Authority), "")
	defer store.Close()
	if !strings.Contains(s.said.String(), "GRANT SELECT ON TABLE system_views.settings") {
		t.Errorf("no warning says that the user may not read commitlog_sync:\n%s", s.said.String())
	}
	for name, err := range map[string]error{
		"insert": store.Insert(t.Context(), metadata.Names, metadata.NameKey("b"), nil),
		"update": store.Update(t.Context(), metadata.Names, metadata.NameKey("a"), 1, nil, 0),
		"put":    store.Put(t.Context(), metadata.Extents, metadata.Key{Partition: "q", Row: "b"}, nil, time.Unix(1, 0), 0, metadata.One),
	} {
		if core.CodeOf(err) != core.CodeInternal || !strings.Contains(err.Error(), "has no MODIFY permission") {
			t.Errorf("%s: got %v, want code %q", name, err, core.CodeInternal)
		}
		s.tellsNoPassword(t, err)
	}
}

func (s *secured) tellsNoPassword(t *testing.T, err error) {
	t.Helper()
	t.Log(err)
	if err != nil && strings.Contains(err.Error(), secret) {
		t.Errorf("the error tells a password: %v", err)
	}
}
