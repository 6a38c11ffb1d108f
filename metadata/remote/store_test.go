package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
	"github.com/columbamq/columba/metadata/metadatatest"
	"github.com/columbamq/columba/metadata/remote"
)

var swaps = metadata.Table{Name: "cas", Rule: metadata.RuleCAS}

func key(row string) metadata.Key { return metadata.Key{Partition: "p", Row: row} }

// served is a store behind a server of its own.
type served struct {
	*remote.Store
	server *httptest.Server
	behind metadata.Store
}

func serve(behind metadata.Store, wrap func(http.Handler) http.Handler) *served {
	mux := http.NewServeMux()
	mux.Handle(remote.NewHandler(behind))
	server := httptest.NewServer(wrap(mux))
	return &served{remote.New(server.Client(), server.URL), server, behind}
}

func plain(h http.Handler) http.Handler { return h }

// Close ends both sides; the streams end with the store behind.
func (s *served) Close() error {
	err := errors.Join(s.Store.Close(), s.behind.Close())
	s.server.Close()
	return err
}

func TestStore(t *testing.T) {
	metadatatest.Run(t, func(*testing.T) metadata.Store { return serve(memory.New(), plain) })
}

// Calls that the connection breaks: what was not sent is unavailable, what may have been done is unknown.
func TestStore_BrokenConnection(t *testing.T) {
	var before, after atomic.Bool // when the server hangs up
	s := serve(memory.New(), func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if before.Load() {
				panic(http.ErrAbortHandler)
			}
			if after.Load() {
				h.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
			h.ServeHTTP(w, r)
		})
	})
	defer s.Close()
	wantCode := func(what string, err error, want core.Code) {
		t.Helper()
		if core.CodeOf(err) != want {
			t.Errorf("%s: %v, want code %q", what, err, want)
		}
	}
	ctx := t.Context()
	before.Store(true)
	wantCode("insert, hung up before", s.Insert(ctx, swaps, key("a"), nil), core.CodeUnknown)
	_, err := s.Get(ctx, swaps, key("a"), metadata.Serial)
	wantCode("get, hung up before", err, core.CodeUnavailable)
	before.Store(false)
	after.Store(true)
	wantCode("insert, hung up after", s.Insert(ctx, swaps, key("a"), nil), core.CodeUnknown)
	after.Store(false)
	row, err := s.Get(ctx, swaps, key("a"), metadata.Serial)
	if err != nil || row.Version == 0 {
		t.Errorf("get: %+v, %v; want the insert that was not answered", row, err)
	}
	s.server.Close()
	wantCode("insert without a server", s.Insert(ctx, swaps, key("b"), nil), core.CodeUnavailable)
	_, err = s.Get(ctx, swaps, key("b"), metadata.Serial)
	wantCode("get without a server", err, core.CodeUnavailable)
}

// A caller's deadline passes while the server works.
func TestStore_Deadline(t *testing.T) {
	asked, release := make(chan struct{}, 2), make(chan struct{})
	s := serve(memory.New(), func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked <- struct{}{}
			<-release
			h.ServeHTTP(w, r)
		})
	})
	defer s.Close()
	defer close(release)
	for name, test := range map[string]struct {
		call func(context.Context) error
		want core.Code
	}{
		"insert": {func(ctx context.Context) error { return s.Insert(ctx, swaps, key("a"), nil) }, core.CodeUnknown},
		"get": {func(ctx context.Context) error {
			_, err := s.Get(ctx, swaps, key("a"), metadata.Serial)
			return err
		}, core.CodeUnavailable},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			<-asked
			cancel()
		})
		if err := test.call(ctx); core.CodeOf(err) != test.want {
			t.Errorf("%s: %v, want code %q", name, err, test.want)
		}
		wg.Wait()
	}
}

func TestStore_LargePages(t *testing.T) {
	s := serve(memory.New(), plain)
	defer s.Close()
	const rows = 3000
	for i := range rows {
		if err := s.behind.Insert(t.Context(), swaps, key(fmt.Sprintf("%05d", i)), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, err := range metadata.All[struct{}](t.Context(), s, swaps, "p", metadata.Serial) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	page, more, err := s.List(t.Context(), swaps, "p", "", rows, metadata.Serial)
	if n != rows || err != nil || !more || len(page) == 0 {
		t.Errorf("all yields %d rows; a page holds %d, more %v, %v", n, len(page), more, err)
	}
}

// A watch goes on when the server comes back at its address, and says so.
func TestWatch_ServerRestarts(t *testing.T) {
	behind := memory.New()
	defer behind.Close()
	first := serve(behind, plain)
	address := first.server.Listener.Addr().String()
	calls := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		err := first.Watch(ctx, swaps, "p", func() {
			select {
			case calls <- struct{}{}:
			default:
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended: %v", err)
		}
	})
	<-calls
	first.server.CloseClientConnections()
	first.server.Listener.Close()
	if err := behind.Insert(t.Context(), swaps, key("meanwhile"), nil); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(remote.NewHandler(behind))
	second := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux}}
	second.Start()
	defer second.Close()
	defer cancel() // before the server waits for its streams
	<-calls
}

func TestHandler_RefusesBadCalls(t *testing.T) {
	s := serve(memory.New(), plain)
	defer s.Close()
	if err := s.Watch(t.Context(), metadata.Table{}, "p", func() {}); core.CodeOf(err) != core.CodeBadArgument {
		t.Errorf("watch of no table: %v", err)
	}
	for path, body := range map[string]string{
		"GetRow":    `{}`,
		"ChangeRow": `{"table":{"name":"t","rule":"TABLE_RULE_CAS"}}`,
		"PutRows":   `{"table":{"name":"t","rule":"TABLE_RULE_PUT"},"remove":true}`,
		"ListRows":  `{"table":{"name":"t","rule":"TABLE_RULE_PUT"}}`,
	} {
		resp, err := s.server.Client().Post(s.server.URL+"/columba.v1.MetadataService/"+path, "application/json", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s without a body: %s", path, resp.Status)
		}
		if code := post(t, s, path, body); code != http.StatusBadRequest {
			t.Errorf("%s %s: status %d", path, body, code)
		}
	}
}

func post(t *testing.T, s *served, path, body string) int {
	t.Helper()
	resp, err := s.server.Client().Post(s.server.URL+"/columba.v1.MetadataService/"+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// A server whose store has several copies: what needs no majority is read from one of them. It may be found out later
// that it has.
func TestStore_WithoutAMajority(t *testing.T) {
	behind := memory.New()
	defer behind.Close()
	mux := http.NewServeMux()
	mux.Handle(remote.NewHandler(oneCopy{behind}))
	server := httptest.NewServer(mux)
	defer server.Close()
	copied := false
	s := remote.NewLocated(http.DefaultClient, func() (string, error) { return server.Listener.Addr().String(), nil }, func() bool { return copied })
	defer http.DefaultClient.CloseIdleConnections()
	defer s.Close()
	if err := behind.Insert(t.Context(), swaps, key("a"), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	shown := metadata.QuorumOrOne(s)
	if _, err := shown.Get(t.Context(), swaps, key("a"), metadata.Quorum); core.CodeOf(err) != core.CodeUnavailable {
		t.Errorf("in one place: %v", err)
	}
	copied = true
	if _, err := shown.Get(t.Context(), swaps, key("a"), metadata.Quorum); err != nil {
		t.Errorf("in several copies: %v", err)
	}
}

// oneCopy is a store whose majority is away.
type oneCopy struct{ metadata.Store }

func (s oneCopy) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if c != metadata.One {
		return metadata.Row{}, core.Errorf(core.CodeUnavailable, "no majority")
	}
	return s.Store.Get(ctx, t, k, c)
}

// A server that moves: each call goes to where it is then, and fails at once while that is not known.
func TestStore_FollowsTheServer(t *testing.T) {
	behind := memory.New()
	defer behind.Close()
	servers := make([]*httptest.Server, 2)
	for i := range servers {
		mux := http.NewServeMux()
		mux.Handle(remote.NewHandler(behind))
		servers[i] = httptest.NewServer(mux)
		defer servers[i].Close()
	}
	away := core.Errorf(core.CodeUnavailable, "nobody holds the metadata")
	var at atomic.Int32 // index of the server; beyond them: away
	s := remote.NewLocated(http.DefaultClient, func() (string, error) {
		if i := at.Load(); int(i) < len(servers) {
			return servers[i].Listener.Addr().String(), nil
		}
		return "", away
	}, nil)
	defer http.DefaultClient.CloseIdleConnections()
	defer s.Close()
	if err := s.Insert(t.Context(), swaps, key("a"), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	at.Store(2)
	if err := s.Insert(t.Context(), swaps, key("b"), nil); err != error(away) {
		t.Errorf("insert while it is away: %v, want %v and not an unknown outcome", err, away)
	}
	if _, err := s.Get(t.Context(), swaps, key("a"), metadata.Serial); err != error(away) {
		t.Errorf("get while it is away: %v, want %v", err, away)
	}
	servers[0].CloseClientConnections()
	at.Store(1)
	if row, err := s.Get(t.Context(), swaps, key("a"), metadata.Serial); err != nil || row.Version == 0 {
		t.Errorf("get after the move: %+v, %v", row, err)
	}
}

// A watch outlives a server that is away.
func TestWatch_ServerMoves(t *testing.T) {
	behind := memory.New()
	defer behind.Close()
	mux := http.NewServeMux()
	mux.Handle(remote.NewHandler(behind))
	first, second := httptest.NewServer(mux), httptest.NewServer(mux)
	var at atomic.Pointer[httptest.Server]
	at.Store(first)
	asked := make(chan struct{}, 100) // while it is away
	s := remote.NewLocated(http.DefaultClient, func() (string, error) {
		if server := at.Load(); server != nil {
			return server.Listener.Addr().String(), nil
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		return "", core.Errorf(core.CodeUnavailable, "nobody holds the metadata")
	}, nil)
	calls := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = s.Watch(ctx, swaps, "p", func() { // ends with ctx: see TestWatch_ServerRestarts
			select {
			case calls <- struct{}{}:
			default:
			}
		})
	})
	<-calls
	at.Store(nil)
	first.CloseClientConnections()
	first.Close()
	<-asked
	<-asked
	if err := behind.Insert(t.Context(), swaps, key("meanwhile"), nil); err != nil {
		t.Fatal(err)
	}
	at.Store(second)
	<-calls
	cancel()
	wg.Wait()
	http.DefaultClient.CloseIdleConnections()
	second.Close()
}

// Many rows are read in the order asked for, page by page when they are large or many; what is not there is left out.
func TestStore_GetRows(t *testing.T) {
	var calls atomic.Int64
	s := serve(memory.New(), func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/GetRows") {
				calls.Add(1)
			}
			h.ServeHTTP(w, r)
		})
	})
	defer s.Close()
	ctx := context.Background()
	var keys []metadata.Key
	for i := range 40 {
		k := key(fmt.Sprintf("large%d", i))
		if err := s.behind.Insert(ctx, swaps, k, make([]byte, metadata.MaxValue)); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k, key(fmt.Sprintf("none%d", i)))
	}
	for i := range 2000 {
		keys = append(keys, key(fmt.Sprintf("other%d", i)))
	}
	rows, err := metadata.GetRows(ctx, s, swaps, keys, metadata.One)
	if err != nil || len(rows) != 40 {
		t.Fatalf("%d rows, %v; want 40", len(rows), err)
	}
	for i, row := range rows {
		if want := fmt.Sprintf("large%d", i); row.Key.Row != want || row.Version == 0 || len(row.Value) != metadata.MaxValue {
			t.Errorf("row %d is %s at version %d with %d bytes, want %s", i, row.Key.Row, row.Version, len(row.Value), want)
		}
	}
	if n := calls.Load(); n < 4 || n > 6 {
		t.Errorf("%d calls for 10 MiB and 2,080 keys, want 5 or so", n)
	}
	if _, err := metadata.GetRows(ctx, s, swaps, []metadata.Key{{}}, metadata.One); core.CodeOf(err) != core.CodeBadArgument {
		t.Errorf("rows without a key: %v", err)
	}
}
