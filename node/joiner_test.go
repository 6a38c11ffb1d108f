package node

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/columbamq/columba/core"
)

// TestCluster_JoinNamesTheOnePort gives --join the address that clients use: the process must not go on as a cluster of its own.
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

// TestCluster_JoinNamesTheOnePortOfOneThatStartsLater has the other not there yet at the first try.
func TestCluster_JoinNamesTheOnePortOfOneThatStartsLater(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	store := serveMember(t, clusterConfig(t, RoleStore, addr))
	cfg := clusterConfig(t, "controller,frontend")
	cfg.Listen = addr
	serveMember(t, cfg)
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
