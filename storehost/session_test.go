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
	conn, err := ws.Dial(t.Context(), strings.TrimPrefix(server.URL, "http://"), "/", ws.Options{ControlBytes: maxAnswers})
	must(t, err)
	t.Cleanup(func() { conn.Abort(nil) })
	return &session{signal: make(chan struct{}, 1), mux: ws.NewMux(conn, nil)}
}

// TestSession_AnswersAreBounded: answers that are never read end the connection, they do not fill the memory.
func TestSession_AnswersAreBounded(t *testing.T) {
	s := unread(t)
	frame := make([]byte, 64<<10)
	const cost = 64 // of a segment
	for range maxAnswers/(len(frame)+cost) - 1 {
		s.mux.Conn.Post(frame)
	}
	if ended(s) {
		t.Fatalf("the connection ended before %d MiB waited", maxAnswers>>20)
	}
	for range 3 {
		s.mux.Conn.Post(frame)
	}
	if !ended(s) {
		t.Errorf("more than %d MiB wait, and the connection goes on", maxAnswers>>20)
	}
}

func ended(s *session) bool { return s.mux.Conn.PushOwned([]byte{0}, nil, nil) != nil }
