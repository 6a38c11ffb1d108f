package storehost

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/columbamq/columba/wire/ws"
)

// unread is a session whose peer does not read.
func unread(t *testing.T) *session {
	t.Helper()
	hold := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := ws.Upgrade(w, r, ws.Options{})
		if err != nil {
			t.Error(err)
			return
		}
		<-hold
		conn.Abort(nil)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(hold) })
	conn, err := ws.Dial(t.Context(), strings.TrimPrefix(server.URL, "http://"), "/", ws.Options{})
	must(t, err)
	t.Cleanup(func() { conn.Abort(nil) })
	return &session{signal: make(chan struct{}, 1), mux: ws.NewMux(conn, nil)}
}

// TestSession_UnsentIsBounded: answers that are never read end the connection, they do not fill the memory.
func TestSession_UnsentIsBounded(t *testing.T) {
	s := unread(t)
	frame := make([]byte, 64<<10)
	least := maxUnsent/(len(frame)+unsentCost) - 1
	for range least {
		s.post(frame)
	}
	if ended(s) {
		t.Fatalf("the connection ended before %d MiB waited", maxUnsent>>20)
	}
	for range 2 + ws.DefaultOptions().SendBytes/len(frame) {
		s.post(frame)
	}
	if !ended(s) {
		t.Errorf("%d frames of %d bytes wait, and the connection goes on", s.mu.unsent.len(), len(frame))
	}
	if got := s.mu.unsent.len() * (len(frame) + unsentCost); got > maxUnsent {
		t.Errorf("%d bytes wait, want at most %d", got, maxUnsent)
	}
}

func ended(s *session) bool { return s.mux.Conn.PushOwned([]byte{0}, nil, nil) != nil }
