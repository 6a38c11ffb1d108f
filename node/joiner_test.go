package node

import (
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"

	"github.com/columbamq/columba/core"
)

// TestCluster_JoinNamesTheOnePort gives --join the address that clients use: the process must not go on as a cluster of
// its own.
func TestCluster_JoinNamesTheOnePort(t *testing.T) {
	ctl := serveMember(t, clusterConfig(t, "controller,frontend"))
	astray := make(map[string]*member)
	for _, roles := range []string{RoleStore, RoleInput, "controller,frontend", allRoles} {
		astray[roles] = begin(t, clusterConfig(t, roles, ctl.at.Addr))
	}
	for roles, m := range astray {
		wantCode(t, roles, receive(t, "end of "+roles, m.ended), core.CodeBadArgument, "gossip=")
		wantFree(t, m.data)
		if _, err := os.Stat(m.data + "/metadata"); err == nil {
			t.Errorf("%s: metadata of a cluster of its own were made", roles)
		}
	}
}

// TestCluster_JoinNamesTheOnePortOfOneThatStartsLater has no server at the address at the first looks.
func TestCluster_JoinNamesTheOnePortOfOneThatStartsLater(t *testing.T) {
	var started atomic.Bool
	looks := make(chan struct{}, 100)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !started.Load() {
			looks <- struct{}{}
			http.NotFound(w, r)
			return
		}
		writeText(w, http.StatusServiceUnavailable, "starting")
	}))
	defer other.Close()
	store := serveMember(t, clusterConfig(t, RoleStore, other.Listener.Addr().String()))
	receive(t, "first look", looks)
	store.want("/readyz", 200, "ready")
	started.Store(true)
	wantCode(t, "the store", receive(t, "its end", store.ended), core.CodeBadArgument, "gossip=")
}

// TestCluster_OneRightAddressIsEnough has a wrong one beside it, which is no reason to end.
func TestCluster_OneRightAddressIsEnough(t *testing.T) {
	ctl := serveMember(t, clusterConfig(t, "controller,frontend"))
	store := serveMember(t, clusterConfig(t, RoleStore, ctl.at.Addr, ctl.at.Gossip))
	ctl.awaitHosts(ctl.at.Addr+"=controller,frontend", store.at.Addr+"=storehost")
	j := newJoiner(store.own, []string{ctl.at.Addr, ctl.at.Gossip})
	waitUntil(t, "meeting the controller that it lists", j.met)
	store.want("/readyz", 200, "ready")
}

// TestJoiner_AnotherServer answers as any web server may.
func TestJoiner_AnotherServer(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, 200, "ok") }))
	defer other.Close()
	if isOnePort(t.Context(), other.Listener.Addr().String()) {
		t.Error("taken for a server of Columba")
	}
}
