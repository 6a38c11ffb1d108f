package cassandra

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/columbamq/columba/core"
)

func TestParseURL(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		url      string
		hosts    []string
		keyspace string
		local    string
		user     string
		password string
		tls      bool
	}{
		{url: "cassandra://a", hosts: []string{"a:9042"}, keyspace: "columba"},
		{url: "cassandra://a,b:9042/", hosts: []string{"a:9042", "b:9042"}, keyspace: "columba"},
		{url: "cassandra://10.0.0.1:7,10.0.0.2:7/tasks?local=10.0.0.2:7", hosts: []string{"10.0.0.1:7", "10.0.0.2:7"}, keyspace: "tasks", local: "10.0.0.2:7"},
		{url: "cassandra://[::1],[fe80::2]:9042/x", hosts: []string{"[::1]:9042", "[fe80::2]:9042"}, keyspace: "x"},
		{url: "cassandra://me@a/x?tls=system&password-file=" + password, hosts: []string{"a:9042"}, keyspace: "x", user: "me", password: "secret", tls: true},
		{url: "cassandra://a?local=b", hosts: []string{"b:9042", "a:9042"}, keyspace: "columba", local: "b:9042"},
	} {
		if err := CheckURL(tc.url); err != nil {
			t.Errorf("check %s: %v", tc.url, err)
		}
		cfg, err := ParseURL(tc.url)
		if err != nil {
			t.Errorf("%s: %v", tc.url, err)
			continue
		}
		if !slices.Equal(cfg.Hosts, tc.hosts) || cfg.Keyspace != tc.keyspace || cfg.Local != tc.local ||
			cfg.Username != tc.user || cfg.Password != tc.password || (cfg.TLS != nil) != tc.tls {
			t.Errorf("%s: got %+v", tc.url, cfg)
		}
	}
}

func TestParseURL_Refuses(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		url, text string
		late      bool // CheckURL, which reads no files, accepts it
	}{
		{url: "", text: "begins with"},
		{url: "http://a/columba", text: "begins with"},
		{url: "cassandra://", text: "empty host"},
		{url: "cassandra://a,/x", text: "empty host"},
		{url: "cassandra://a/Bad-Name", text: "not a name of small letters"},
		{url: "cassandra://a/x/y", text: "not a name of small letters"},
		{url: "cassandra://a:1,b:2/x", text: "all need the same"},
		{url: "cassandra://a:/x", text: "no port between"},
		{url: "cassandra://a:,b/x", text: "no port between"},
		{url: "cassandra://a:0/x", text: "no port between"},
		{url: "cassandra://a:65536/x", text: "no port between"},
		{url: "cassandra://a:-1/x", text: "no port between"},
		{url: "cassandra://a/x?local=b:", text: "no port between", late: true},
		{url: "Cassandra://me:secret@a/x", text: "begins with"},
		{url: "https://me:secret@a/x", text: "begins with"},
		{url: "cassandra://me:top/secret@a/x", text: "password, which others can see"},
		{url: "cassandra://me:top?secret=1@a/x", text: "password, which others can see"},
		{url: "cassandra://me:top#secret@a/x", text: "password, which others can see"},
		{url: "cassandra:///x?password=secret", text: "empty host"},
		{url: "cassandra://a/x?password=%secret", text: "options of"},
		{url: "cassandra://a/x?password=secret", text: `option "password"`},
		{url: "cassandra://a/x?password=secret&password=secret2", text: "is given 2 times", late: false},
		{url: "cassandra://me@a/x?password=secret", text: `option "password"`},
		{url: "cassandra://a/x?colour=red", text: `option "colour"`},
		{url: "cassandra://me:secret@a/x?%zz", text: "password, which others can see"},
		{url: "cassandra://me:secret@a/x", text: "password, which others can see"},
		{url: "cassandra://me@a/x", text: "both a user and the option password-file", late: true},
		{url: "cassandra://a/x?password-file=/nonexistent/me@file", text: "password of the Cassandra user", late: true},
		{url: "cassandra://a/x?password-file=" + empty, text: "is empty", late: true},
		{url: "cassandra://a/x?password-file=/nonexistent/file", text: "password of the Cassandra user", late: true},
		{url: "cassandra://a/x?tls=" + empty, text: "no certificate in PEM", late: true},
		{url: "cassandra://a/x?local=a&local=b", text: "is given 2 times", late: true},
	} {
		_, err := ParseURL(tc.url)
		if core.CodeOf(err) != core.CodeBadArgument || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: got %v, want %q", tc.url, err, tc.text)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error tells the password: %v", tc.url, err)
		}
		if err := CheckURL(tc.url); (err == nil) != tc.late {
			t.Errorf("check %s: got %v", tc.url, err)
		}
	}
}
