package cassandra

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// answer is an error that a node answers, with its number.
type answer int

func (a answer) Code() int       { return int(a) }
func (a answer) Message() string { return "answer" }
func (a answer) Error() string   { return "answer" }

// says is an error that a node answers, with its text.
type says struct {
	answer
	text string
}

func (s says) Message() string { return s.text }
func (s says) Error() string   { return s.text }

var errUnavailable = &gocql.RequestErrUnavailable{}

func unavailableAt(c gocql.Consistency) error {
	return &gocql.RequestErrUnavailable{Consistency: c}
}

// cannotAuthorize is what a node answers that does not reach the replicas of the users and their rights.
var cannotAuthorize = says{answer(gocql.ErrCodeUnauthorized), "Unable to perform authorization of permissions: Cannot achieve consistency level LOCAL_QUORUM"}

func TestUntouched(t *testing.T) {
	serial := gocql.Consistency(gocql.Serial)
	for name, test := range map[string]struct {
		err         error
		plain, swap bool
	}{
		"no host":                          {gocql.ErrNoConnections, true, true},
		"not sent":                         {errTooFew, true, true},
		"no stream":                        {gocql.ErrNoStreams, true, true},
		"closed session":                   {gocql.ErrSessionClosed, true, true},
		"too few replicas":                 {unavailableAt(gocql.Quorum), true, false},
		"too few replicas for Paxos":       {unavailableAt(serial), true, true},
		"starting node":                    {answer(gocql.ErrCodeBootstrapping), true, true},
		"wrong statement":                  {answer(gocql.ErrCodeInvalid), true, true},
		"no right":                         {answer(gocql.ErrCodeUnauthorized), true, true},
		"rights that cannot be read":       {cannotAuthorize, true, true},
		"client timeout":                   {gocql.ErrTimeoutNoResponse, false, false},
		"lost connection":                  {gocql.ErrConnectionClosed, false, false},
		"timeout of a write":               {answer(gocql.ErrCodeWriteTimeout), false, false},
		"failure of a write":               {answer(gocql.ErrCodeWriteFailure), false, false},
		"timeout of a read before a write": {answer(gocql.ErrCodeReadTimeout), false, false},
		"unknown transaction":              {answer(gocql.ErrCodeCASWriteUnknown), false, false},
		"overload":                         {answer(gocql.ErrCodeOverloaded), false, false},
		"end of the context":               {context.DeadlineExceeded, false, false},
		"defect of the server":             {answer(gocql.ErrCodeServer), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := untouched(test.err, false); got != test.plain {
				t.Errorf("plain write: got %v, want %v", got, test.plain)
			}
			if got := untouched(test.err, true); got != test.swap {
				t.Errorf("transaction: got %v, want %v", got, test.swap)
			}
		})
	}
}

func TestEachHost(t *testing.T) {
	for name, test := range map[string]struct {
		one     bool
		err     error
		want    gocql.RetryType
		touched bool
	}{
		"a paused node":                    {false, gocql.ErrTimeoutNoResponse, gocql.RetryNextHost, true},
		"a node that sees too few":         {false, errUnavailable, gocql.RetryNextHost, false},
		"replicas that do not answer":      {false, answer(gocql.ErrCodeWriteTimeout), gocql.Rethrow, true},
		"one that does not answer, at One": {true, answer(gocql.ErrCodeReadTimeout), gocql.RetryNextHost, true},
		"a wrong statement":                {true, answer(gocql.ErrCodeInvalid), gocql.Rethrow, false},
		"rights that cannot be read":       {true, cannotAuthorize, gocql.RetryNextHost, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &eachHost{one: test.one}
			if got := p.GetRetryType(test.err); got != test.want || p.touched != test.touched {
				t.Errorf("got %v, touched %v; want %v, %v", got, p.touched, test.want, test.touched)
			}
			if p.after(nil) {
				t.Error("a request that was done in the end counts as one that may be done")
			}
		})
	}
	p := &eachHost{}
	p.GetRetryType(gocql.ErrTimeoutNoResponse)
	if !p.after(errUnavailable) {
		t.Error("the second node did nothing; the first one may have")
	}
}

// A transaction goes to the next node only if none has begun it.
func TestUntouchedHosts(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want gocql.RetryType
	}{
		"a node that sees too few":   {unavailableAt(gocql.Consistency(gocql.Serial)), gocql.RetryNextHost},
		"a node that starts":         {answer(gocql.ErrCodeBootstrapping), gocql.RetryNextHost},
		"too few for the last phase": {unavailableAt(gocql.Quorum), gocql.Rethrow},
		"a paused node":              {gocql.ErrTimeoutNoResponse, gocql.Rethrow},
		"a lost connection":          {gocql.ErrConnectionClosed, gocql.Rethrow},
		"an unknown outcome":         {answer(gocql.ErrCodeCASWriteUnknown), gocql.Rethrow},
		"a wrong statement":          {answer(gocql.ErrCodeInvalid), gocql.Rethrow},
	} {
		if got := (untouchedHosts{}).GetRetryType(test.err); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

// script is a session whose calls fail as a test wants. A nil function fails the test.
type script struct {
	onWrite func(statements []statement) (bool, error)
	onSwap  func() (bool, state, error)
	onRead  func() error
	closed  atomic.Bool
}

func (s *script) write(_ context.Context, _ gocql.Consistency, statements []statement) (bool, error) {
	return s.onWrite(statements)
}
func (s *script) swap(context.Context, statement) (bool, state, error) { return s.onSwap() }
func (s *script) read(ctx context.Context, _ gocql.Consistency, _ int, _ statement, _ func(gocql.Scanner) (bool, error)) error {
	if s.closed.Load() {
		panic("a call goes on after its session was closed")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.onRead()
}
func (s *script) page(ctx context.Context, c gocql.Consistency, _ int, _ []byte, st statement, _ func(gocql.Scanner) error) ([]byte, error) {
	return nil, s.read(ctx, c, 0, st, nil)
}
func (s *script) close() { s.closed.Store(true) }

func scripted(s *script) *Store {
	return newStore(s, Config{Keyspace: "k", Poll: 2 * time.Second, Log: slog.New(slog.DiscardHandler)})
}

func noError() error { return nil }

func TestStore_Outcomes(t *testing.T) {
	written := func([]statement) (bool, error) { return false, nil }
	timeout := func() (bool, state, error) { return false, state{}, gocql.ErrTimeoutNoResponse }
	insert := func(ctx context.Context, s *Store) error {
		return s.Insert(ctx, metadata.Names, metadata.NameKey("a"), nil)
	}
	update := func(ctx context.Context, s *Store) error {
		return s.Update(ctx, metadata.Seals, metadata.Key{Partition: "id", Row: "a"}, 5, nil, 0)
	}
	put := func(ctx context.Context, s *Store) error {
		return s.Put(ctx, metadata.Extents, metadata.Key{Partition: "q", Row: "a"}, nil, time.Unix(1, 0), 0, metadata.One)
	}
	for name, test := range map[string]struct {
		session *script
		call    func(context.Context, *Store) error
		want    core.Code
	}{
		"insert without an index entry": {&script{
			onWrite: func([]statement) (bool, error) { return true, gocql.ErrTimeoutNoResponse },
		}, insert, core.CodeUnavailable},
		"insert on a minority side": {&script{
			onWrite: written,
			onSwap:  func() (bool, state, error) { return false, state{}, unavailableAt(gocql.Consistency(gocql.Serial)) },
		}, insert, core.CodeUnavailable},
		"insert that cannot be read back": {&script{
			onWrite: written, onSwap: timeout, onRead: func() error { return errUnavailable },
		}, insert, core.CodeUnknown},
		"insert that is refused after one that is lost": {&script{
			onWrite: written, onRead: noError,
			onSwap: onceThen(timeout, func() (bool, state, error) { return false, state{}, gocql.ErrNoConnections }),
		}, insert, core.CodeUnknown},
		"insert that is applied by the second try": {&script{
			onWrite: written, onRead: noError,
			onSwap: onceThen(timeout, func() (bool, state, error) { return true, state{}, nil }),
		}, insert, ""},
		"update that is not applied": {&script{
			onSwap: func() (bool, state, error) { return false, state{version: 6, live: true, attempt: "other"}, nil },
		}, update, core.CodeConflict},
		"update of no row": {&script{
			onSwap: func() (bool, state, error) { return false, state{}, nil },
		}, update, core.CodeNotFound},
		"update with a wrong statement": {&script{
			onSwap: func() (bool, state, error) { return false, state{}, answer(gocql.ErrCodeInvalid) },
		}, update, core.CodeInternal},
		"put that may be done": {&script{
			onWrite: func([]statement) (bool, error) { return true, gocql.ErrTimeoutNoResponse },
		}, put, core.CodeUnknown},
		"put whose right no node can read": {&script{
			onWrite: func([]statement) (bool, error) { return false, cannotAuthorize },
		}, put, core.CodeUnavailable},
		"put that no node has seen": {&script{
			onWrite: func([]statement) (bool, error) { return false, gocql.ErrNoConnections },
		}, put, core.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := scripted(test.session)
				defer s.Close()
				if err := test.call(t.Context(), s); core.CodeOf(err) != test.want {
					t.Errorf("got %v, want code %q", err, test.want)
				}
			})
		})
	}
}

// A read at SERIAL that meets transactions of others is tried again until its deadline. Replicas that do not answer are
// not waited for twice.
func TestStore_ContendedRead(t *testing.T) {
	for name, test := range map[string]struct {
		takes time.Duration
		fails int // reads, until one succeeds
		at    metadata.Consistency
		want  core.Code
		reads int
	}{
		"others' transactions":           {50 * time.Millisecond, 5, metadata.Serial, core.CodeNotFound, 6},
		"others' transactions, for long": {50 * time.Millisecond, 1000, metadata.Serial, core.CodeUnavailable, 0},
		"replicas that do not answer":    {3 * time.Second, 5, metadata.Serial, core.CodeUnavailable, 1},
		"no transaction":                 {50 * time.Millisecond, 5, metadata.Quorum, core.CodeUnavailable, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads := 0
				s := scripted(&script{onRead: func() error {
					<-time.After(test.takes)
					if reads++; reads <= test.fails {
						return answer([]int{gocql.ErrCodeReadTimeout, gocql.ErrCodeWriteTimeout}[reads%2])
					}
					return nil
				}})
				defer s.Close()
				began := time.Now()
				_, err := s.Get(t.Context(), metadata.Seals, metadata.Key{Partition: "id", Row: "a"}, test.at)
				if core.CodeOf(err) != test.want || test.reads > 0 && reads != test.reads {
					t.Errorf("%v after %d reads; want code %q after %d", err, reads, test.want, test.reads)
				}
				if took := time.Since(began); took > metadata.DefaultDeadline+time.Second {
					t.Errorf("the call took %s", took)
				}
			})
		})
	}
}

// onceThen answers first, and then.
func onceThen(first, then func() (bool, state, error)) func() (bool, state, error) {
	return func() (bool, state, error) {
		now := first
		first = then
		return now()
	}
}

// Of many writes one is refused: the others are there, and the error names the rows of that one.
func TestStore_PutAllInPart(t *testing.T) {
	s := scripted(&script{onWrite: func(statements []statement) (bool, error) {
		if len(statements) == 1 {
			return false, gocql.ErrNoConnections
		}
		return false, nil
	}})
	defer s.Close()
	rows := []metadata.Row{{Key: metadata.Key{Partition: "a", Row: "1"}}, {Key: metadata.Key{Partition: "a", Row: "2"}}}
	for i := range rows {
		rows[i].Written = time.Unix(1, 0)
	}
	if err := s.PutAll(t.Context(), metadata.Work, rows[:1], metadata.One); core.CodeOf(err) != core.CodeUnavailable {
		t.Errorf("got %v, want code %q", err, core.CodeUnavailable)
	}
	other := metadata.Row{Key: metadata.Key{Partition: "b", Row: "1"}, Written: time.Unix(1, 0)}
	err := s.PutAll(t.Context(), metadata.Work, []metadata.Row{rows[0], other, rows[1]}, metadata.One)
	if core.CodeOf(err) != core.CodeUnknown {
		t.Errorf("got %v, want code %q", err, core.CodeUnknown)
	}
	if got := metadata.Unstored(err, 3); !slices.Equal(got, []int{1}) {
		t.Errorf("the rows %v may not be stored, want the one that was refused: %v", got, err)
	}
}

// Close ends a call that waits for Cassandra, and the session only after it.
func TestStore_CloseEndsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session := &script{onRead: func() error { return errUnavailable }}
		session.onSwap = func() (bool, state, error) { return false, state{}, errors.New("lost") }
		s := scripted(session)
		result := make(chan error, 1)
		go func() {
			result <- s.Update(t.Context(), metadata.Seals, metadata.Key{Partition: "id", Row: "a"}, 5, nil, 0)
		}()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-result; core.CodeOf(err) != core.CodeUnknown {
			t.Errorf("got %v, want code %q", err, core.CodeUnknown)
		}
		if !session.closed.Load() {
			t.Error("the session is open")
		}
	})
}
