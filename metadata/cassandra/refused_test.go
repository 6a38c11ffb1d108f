package cassandra

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
)

// TestOpen_TLSMismatch: Open does not try again where that cannot help, and says what to do.
func TestOpen_TLSMismatch(t *testing.T) {
	plain, secure := httptest.NewUnstartedServer(http.NotFoundHandler()), httptest.NewUnstartedServer(http.NotFoundHandler())
	plain.Config.ErrorLog, secure.Config.ErrorLog = log.New(io.Discard, "", 0), log.New(io.Discard, "", 0)
	plain.Start()
	defer plain.Close()
	secure.StartTLS()
	defer secure.Close()
	trusted := &tls.Config{RootCAs: secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	named := trusted.Clone()
	named.ServerName = "cassandra.example.org"
	for name, test := range map[string]struct {
		server *httptest.Server
		tls    *tls.Config
		text   string
	}{
		"a node without TLS":       {plain, trusted, "does not speak TLS"},
		"a node that wants TLS":    {secure, nil, "wants TLS"},
		"a foreign authority":      {secure, &tls.Config{RootCAs: x509.NewCertPool()}, "unknown authority"},
		"a certificate of another": {secure, named, "cassandra.example.org"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := Open(ctx, Config{Hosts: []string{test.server.Listener.Addr().String()}, TLS: test.tls, Connect: 5 * time.Second})
			if core.CodeOf(err) != core.CodeBadArgument || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want code %q and %q", err, core.CodeBadArgument, test.text)
			}
		})
	}
}

// TestConnect_StandstillInHandshake: a node that stands still takes connections, and never answers.
func TestConnect_StandstillInHandshake(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg, err := Config{Hosts: []string{l.Addr().String()}, TLS: &tls.Config{}, Connect: 100 * time.Millisecond}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := cfg.connect(time.Second)
		failed <- err
	}()
	select {
	case err := <-failed:
		if core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("got %v, want code %q", err, core.CodeUnavailable)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits for the handshake without limit")
	}
}

// TestRefusals_Reason: what may be over soon is no reason to give up.
func TestRefusals_Reason(t *testing.T) {
	password := says{answer(gocql.ErrCodeCredentials), "Provided username me and/or password are incorrect"}
	foreign := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	down := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, test := range map[string]struct {
		failed []error
		want   error
	}{
		"a wrong password":                {[]error{password}, password},
		"a wrong password, one node down": {[]error{down, password}, password},
		"a node that cannot read users":   {[]error{says{answer(gocql.ErrCodeCredentials), "Unable to perform authentication: Cannot achieve consistency level LOCAL_QUORUM"}}, nil},
		"a foreign certificate":           {[]error{foreign, foreign}, foreign},
		"a foreign one, one node down":    {[]error{foreign, down}, nil},
		"all nodes down":                  {[]error{down, down}, nil},
	} {
		r := refusals{last: map[string]error{}}
		for i, err := range test.failed {
			host := (&gocql.HostInfo{}).SetConnectAddress(net.IPv4(127, 0, 0, byte(i)))
			r.ObserveConnect(gocql.ObservedConnect{Host: host, Err: io.ErrUnexpectedEOF})
			r.ObserveConnect(gocql.ObservedConnect{Host: host})
			r.ObserveConnect(gocql.ObservedConnect{Host: host, Err: err})
		}
		if advice, err := r.reason(); err != test.want || (advice == "") != (err == nil) {
			t.Errorf("%s: got %v, %q; want %v", name, err, advice, test.want)
		}
	}
}
