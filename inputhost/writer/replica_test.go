package writer

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// storeEnd is the store's end of a link: it answers the opening of streams, and reads on when it is let.
type storeEnd struct {
	conn *ws.Conn
	mu   sync.Mutex
	got  []wire.FrameType
	more chan struct{} // one for each frame
	let  chan struct{} // closed: it reads beyond the first frame
	why  error         // not nil: it refuses every extent
}

func (s *storeEnd) frame(f wire.Frame, _ *ws.Message) ws.StreamHandler {
	s.mu.Lock()
	s.got = append(s.got, f.Type)
	s.mu.Unlock()
	s.more <- struct{}{}
	if f.Type == wire.TypeOpenAppend && s.why != nil {
		s.conn.Post(wire.AppendFrame(nil, wire.TypeRefused, f.Stream, refusal(s.why)))
		return nil
	}
	if f.Type == wire.TypeOpenAppend {
		s.conn.Post(wire.AppendFrame(nil, wire.TypeOpened, f.Stream, nil))
		return nil
	}
	<-s.let
	return nil
}

// linkToStore connects a link to a store's end.
func linkToStore(t *testing.T) (*ws.Mux, *storeEnd) {
	t.Helper()
	l := netmem.Listen("store")
	end := &storeEnd{more: make(chan struct{}, 100), let: make(chan struct{})}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := ws.Upgrade(w, r, ws.Options{})
		if err != nil {
			t.Error(err)
			return
		}
		end.conn = conn
		ws.NewMux(conn, end.frame).Run(ctx)
	})}
	wg.Go(func() { server.Serve(l) })
	conn, err := ws.Dial(ctx, "store", "/", ws.Options{NetDial: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }})
	if err != nil {
		t.Fatal(err)
	}
	mux := ws.NewMux(conn, nil)
	wg.Go(func() { mux.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		server.Close()
		wg.Wait()
	})
	return mux, end
}

// TestReplica_SaysEverythingOnASaturatedLink: a store that reads slowly still learns how far a quiet extent is
// committed, and that its stream has ended, though the appends of other extents fill the queue beyond its bound.
func TestReplica_SaysEverythingOnASaturatedLink(t *testing.T) {
	mux, end := linkToStore(t)
	w := New(core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a"}}, Limits{}, Env{Now: time.Now})
	r, err := OpenReplica(t.Context(), mux, w, 0)
	if err != nil {
		t.Fatal(err)
	}
	records := make([]byte, 256<<10)
	const appends = 40 // 10 MiB
	for range appends {
		if err := r.Append(wire.BatchHeader{}, records, 0, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	r.Commit(1)
	r.Close()
	close(end.let)
	for range appends + 3 {
		select {
		case <-end.more:
		case <-time.After(10 * time.Second):
			end.mu.Lock()
			t.Fatalf("the store got %d frames, want %d", len(end.got), appends+3)
		}
	}
	end.mu.Lock()
	defer end.mu.Unlock()
	if got, want := end.got[len(end.got)-2:], []wire.FrameType{wire.TypeCommitted, wire.TypeCloseAppend}; !slices.Equal(got, want) {
		t.Errorf("the last frames are %v, want %v", got, want)
	}
}

func refusal(why error) []byte {
	body, err := proto.Marshal(convert.ErrorToProto(why))
	if err != nil {
		panic(err)
	}
	return body
}

// TestReplica_ForgetsARefusedStream: a store that refuses extents for days, because it is full, does not make the link
// hold their writers.
func TestReplica_ForgetsARefusedStream(t *testing.T) {
	mux, end := linkToStore(t)
	end.why = core.Errorf(core.CodeNoSpace, "the disk is full")
	env := Env{Now: time.Now, Log: slog.New(slog.DiscardHandler), Ended: func(*Writer, core.HostID, error) {}, Go: func(func(context.Context)) bool { return false }}
	for range 3 {
		w := New(core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a"}}, Limits{}, env)
		if _, err := OpenReplica(t.Context(), mux, w, 0); core.CodeOf(err) != core.CodeNoSpace {
			t.Fatalf("open: %v, want %s", err, core.CodeNoSpace)
		}
	}
	if n := mux.Streams(); n != 0 {
		t.Errorf("the link has %d streams after their opening was refused, want 0", n)
	}
}
