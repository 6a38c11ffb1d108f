package controller

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
)

// servedHost is a host of the harness that listens.
type servedHost struct {
	listener *netmem.Listener
	server   *http.Server
}

// serve listens at an address.
func (r *harness) serve(addr string, h http.Handler) {
	dated := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		ahead, self := r.mu.ahead[addr], r.mu.runs[addr]
		r.mu.Unlock()
		peer.Identify(w.Header(), self.ID, self.Run)
		if ahead != 0 {
			w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		}
		h.ServeHTTP(w, req)
	})
	s := &servedHost{netmem.Listen(addr), &http.Server{Handler: dated}}
	r.mu.Lock()
	r.mu.serving[addr] = s
	r.mu.Unlock()
	r.wg.Go(func() { s.server.Serve(s.listener) })
}

// ahead sets by how much the clock of a host is ahead.
func (r *harness) ahead(id core.HostID, by time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.ahead[string(id)+":1"] = by
}

func (r *harness) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	r.mu.Lock()
	s := r.mu.serving[addr]
	r.mu.Unlock()
	if s == nil {
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	return s.listener.Dial(ctx)
}

func (r *harness) up(s *fakeStore) {
	mux := http.NewServeMux()
	mux.Handle(columbav1connect.NewStoreServiceHandler(s))
	r.serve(string(s.id)+":1", s.guard(mux))
}

func (r *harness) upOutput(o *fakeOutput) {
	mux := http.NewServeMux()
	mux.Handle(columbav1connect.NewOutputServiceHandler(o))
	r.serve(string(o.id)+":1", mux)
}

// kill ends a process at once: nobody listens. Membership does not know yet.
func (r *harness) kill(id core.HostID) {
	addr := string(id) + ":1"
	r.mu.Lock()
	s := r.mu.serving[addr]
	delete(r.mu.serving, addr)
	r.mu.Unlock()
	s.server.Close()
}

// restart starts a killed store again, as a new run.
func (r *harness) restart(s *fakeStore) {
	s.with(func() { s.run = newRun() })
	r.up(s)
	r.join(membership.Host{ID: s.id, Roles: []string{"storehost"}, Address: string(s.id) + ":1", Run: s.run})
}

// wipe gives a store an empty directory.
func (s *fakeStore) wipe() {
	s.with(func() {
		s.disk = core.DiskID{ID: core.NewID(time.Now())}
		clear(s.replicas)
		clear(s.removed)
	})
}

// hang stops a store like SIGSTOP; its address still takes connections.
func (r *harness) hang(s *fakeStore) {
	s.with(func() {
		if s.hung == nil {
			s.hung = make(chan struct{})
		}
	})
}

func (r *harness) wake(s *fakeStore) {
	s.with(func() {
		if s.hung != nil {
			close(s.hung)
			s.hung = nil
		}
	})
}

func (r *harness) join(hosts ...membership.Host) {
	r.mu.Lock()
	for _, m := range hosts {
		r.mu.members[m.ID], r.mu.runs[m.Address] = m, m
	}
	r.mu.Unlock()
	r.tellMembers()
}

func (r *harness) leave(id core.HostID) {
	r.mu.Lock()
	delete(r.mu.members, id)
	r.mu.Unlock()
	r.tellMembers()
}

func (r *harness) tellMembers() {
	r.mu.Lock()
	all := make([]membership.Host, 0, len(r.mu.members))
	for _, m := range r.mu.members {
		all = append(all, m)
	}
	r.mu.Unlock()
	for _, m := range append(r.further, r.members) {
		r.ok(m.Set(all))
	}
}
