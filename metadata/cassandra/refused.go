package cassandra

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gocql/gocql"
)

// dialer connects to a node. The driver's own one waits without limit for the TLS handshake of a node that stands
// still.
type dialer struct {
	tls   *tls.Config // nil: none
	limit time.Duration
}

// DialHost implements gocql.HostDialer.
func (d dialer) DialHost(ctx context.Context, host *gocql.HostInfo) (*gocql.DialedHost, error) {
	ctx, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", host.ConnectAddressAndPort())
	if err != nil {
		return nil, err
	}
	return gocql.WrapTLS(ctx, conn, host.HostnameAndPort(), d.tls)
}

// speaksTLS reports whether a node answers a TLS handshake, whoever it is.
func (d dialer) speaksTLS(address string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d.limit)
	defer cancel()
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", address)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// refusals keep why nodes could not be connected to. The driver's own error has only the text of one of them. Safe for
// concurrent use.
type refusals struct {
	dialer
	mu   sync.Mutex
	last map[string]error // by address of nodes whose last connection failed
}

var _ gocql.ConnectObserver = (*refusals)(nil)

// ObserveConnect implements gocql.ConnectObserver.
func (r *refusals) ObserveConnect(o gocql.ObservedConnect) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if address := o.Host.ConnectAddressAndPort(); o.Err == nil {
		delete(r.last, address)
	} else {
		r.last[address] = o.Err
	}
}

// reason returns why each further try will fail, and what to do; nil if one may succeed. If one node refuses the user,
// all will. A certificate may be wrong on one node only: a failure of TLS counts if no node failed in another way.
func (r *refusals) reason() (advice string, err error) {
	r.mu.Lock()
	last := maps.Clone(r.last) // nodes may be asked below
	r.mu.Unlock()
	others := false
	for address, e := range last {
		switch user, secure := badUser(e), r.badTLS(address, e); {
		case user != "":
			return user, e
		case secure != "":
			err, advice = e, secure
		default:
			others = true
		}
	}
	if others {
		return "", nil
	}
	return advice, err
}

// badUser says what to do if a node refuses the user; "" if it does not.
func badUser(err error) string {
	switch {
	case codeOf(err) == gocql.ErrCodeCredentials && rejected(err):
		return "check the user in the URL, and the file that the option password-file names"
	case strings.HasPrefix(err.Error(), "authentication required"): // the driver has no other mark for it
		return "name a user in the URL, and the file with the password in the option password-file"
	}
	return ""
}

// badTLS says what to do if a node and this process do not agree about TLS; "" if that is not why err happened.
func (r *refusals) badTLS(address string, err error) string {
	var certificate *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	var alert *net.OpError
	switch {
	case errors.As(err, &certificate):
		return "the option tls must name the authority that signed the certificates of the nodes, and each certificate the address of its node"
	case errors.As(err, &plain):
		return "the node does not speak TLS on this port: set client_encryption_options in its cassandra.yaml, or leave out the option tls"
	case errors.As(err, &alert) && alert.Op == "remote error":
		return "the node refuses the TLS connection: see its log, and client_encryption_options in its cassandra.yaml"
	case r.tls == nil && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) && r.speaksTLS(address):
		return "the node wants TLS: set the option tls in the URL"
	}
	return ""
}
