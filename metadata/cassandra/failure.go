package cassandra

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
)

// untouched reports whether a request that failed with err has changed nothing, and never will.
func untouched(err error, swap bool) bool {
	for _, certain := range []error{errTooFew, gocql.ErrNoConnections, gocql.ErrNoStreams, gocql.ErrSessionClosed} {
		if errors.Is(err, certain) {
			return true
		}
	}
	if unavailable := (*gocql.RequestErrUnavailable)(nil); errors.As(err, &unavailable) {
		// A swap that found too few nodes for its last phase has been decided already.
		return !swap || serial(unavailable.Consistency)
	}
	return rejected(err) || rightsAway(err) || codeOf(err) == gocql.ErrCodeBootstrapping
}

func serial(c gocql.Consistency) bool {
	return c == gocql.Consistency(gocql.Serial) || c == gocql.Consistency(gocql.LocalSerial)
}

// rejected reports whether the request itself is wrong: no node will accept it.
func rejected(err error) bool {
	switch codeOf(err) {
	case gocql.ErrCodeSyntax, gocql.ErrCodeInvalid, gocql.ErrCodeConfig:
		return true
	case gocql.ErrCodeUnauthorized, gocql.ErrCodeCredentials:
		return !rightsAway(err)
	}
	return false
}

// rightsAway reports whether a node refused a request since it does not reach the replicas that know the user's
// password and rights. Only the text tells that from a wrong password and a missing right.
func rightsAway(err error) bool {
	answer := gocql.RequestError(nil)
	return errors.As(err, &answer) && strings.HasPrefix(answer.Message(), "Unable to perform auth")
}

// codeOf returns the number of an error that a node answered, -1 for other errors.
func codeOf(err error) int {
	if answer := gocql.RequestError(nil); errors.As(err, &answer) {
		return answer.Code()
	}
	return -1
}

// hostTimedOut reports whether a node answered that others did not answer it.
func hostTimedOut(err error) bool {
	switch codeOf(err) {
	case gocql.ErrCodeReadTimeout, gocql.ErrCodeWriteTimeout, gocql.ErrCodeReadFailure, gocql.ErrCodeWriteFailure:
		return true
	}
	return false
}

// realTimeout is below all timeouts of Cassandra for its replicas.
const realTimeout = time.Second

// contended reports whether a read at SERIAL that failed with err in that time met transactions of others. Cassandra
// then answers a timeout, mostly of a write since the read tries to end the other transaction, long before replicas
// could have timed out. Another try soon succeeds.
func contended(err error, took time.Duration) bool {
	code := codeOf(err)
	return (code == gocql.ErrCodeWriteTimeout || code == gocql.ErrCodeReadTimeout) && took < realTimeout
}

// eachHost asks one node after the other, each once, until one does what is asked. It serves one request that may be
// done twice: a read, or a write with a timestamp.
type eachHost struct {
	one     bool // any single replica will do
	touched bool // a node may have done it
}

// Attempt implements gocql.RetryPolicy.
func (p *eachHost) Attempt(q gocql.RetryableQuery) bool { return q.Context().Err() == nil }

// GetRetryType implements gocql.RetryPolicy.
func (p *eachHost) GetRetryType(err error) gocql.RetryType {
	p.touched = p.touched || !untouched(err, false)
	if rejected(err) || hostTimedOut(err) && !p.one {
		return gocql.Rethrow
	}
	return gocql.RetryNextHost
}

// untouchedHosts asks one node after the other while none has begun a transaction: a node that sees too few others may
// be cut off from them, or have started just now, and the process may reach another one.
type untouchedHosts struct{}

// Attempt implements gocql.RetryPolicy.
func (untouchedHosts) Attempt(q gocql.RetryableQuery) bool { return q.Context().Err() == nil }

// GetRetryType implements gocql.RetryPolicy.
func (untouchedHosts) GetRetryType(err error) gocql.RetryType {
	if untouched(err, true) && !rejected(err) {
		return gocql.RetryNextHost
	}
	return gocql.Rethrow
}

// readError is the error of a read.
func readError(ctx context.Context, err error) error {
	if rejected(err) {
		return core.Errorf(core.CodeInternal, "Cassandra refuses to read metadata: %w", err)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return core.Errorf(core.CodeUnavailable, "metadata could not be read from Cassandra: %w", withAdvice(err, false))
}

// writeError is the error of a change; touched: a node may have done it.
func writeError(ctx context.Context, err error, touched bool) error {
	switch {
	case touched:
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return core.Errorf(core.CodeUnknown, "the change of metadata may or may not be stored in Cassandra: %w", err)
	case rejected(err):
		return core.Errorf(core.CodeInternal, "Cassandra refuses to change metadata: %w", err)
	}
	return core.Errorf(core.CodeUnavailable, "metadata could not be changed in Cassandra: %w", withAdvice(err, true))
}

// withAdvice says what to do if too few replicas answered.
func withAdvice(err error, swap bool) error {
	if !tooFew(err, swap) {
		return err
	}
	return fmt.Errorf("%w; %s", err, startNodes)
}
