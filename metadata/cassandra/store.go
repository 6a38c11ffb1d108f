// Package cassandra owns the metadata.Store that keeps rows in Apache Cassandra: rows that change by compare-and-set by
// lightweight transactions, all others by plain writes with the timestamps of their writers. docs/adr/0063 says why the
// rows lie as they do.
package cassandra

import (
	"context"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	maxCall      = 10 * time.Minute // of one call, whatever its context allows: see entryGrace
	connectPause = 2 * time.Second  // between two tries to connect
	connectSay   = 10 * time.Second // between two lines of the log about such tries
	atOnce       = 16               // requests of one call side by side
)

// Store keeps rows in Cassandra. Safe for concurrent use, also by many processes.
type Store struct {
	session  session
	majority metadata.Majority
	cfg      Config
	prefix   string // of the names of tables, so that tests do not see each other's rows
	writer   string // names this store in notes
	notifier metadata.Notifier
	notes    notes
	polls    polls
	ctx      context.Context // ends when the store closes
	stop     context.CancelCauseFunc

	life struct {
		sync.Mutex
		closed bool
		calls  sync.WaitGroup
	}
}

var (
	_ metadata.Store       = (*Store)(nil)
	_ metadata.RowsGetter  = (*Store)(nil)
	_ metadata.WhereLister = (*Store)(nil)
	_ metadata.Copied      = (*Store)(nil)

	_ metadata.VersionInserter = (*Store)(nil)
)

var errClosed = core.Errorf(core.CodeUnavailable, "metadata store is closed")

// Open connects to the cluster, and tries again until ctx ends. The schema must be there: see Apply. Errors:
// CodeBadArgument, also when the nodes refuse the user, or disagree about TLS; CodeUnavailable; CodeVersion when the
// schema is not one that this binary works with.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	nodes := &members{}
	cfg.members = nodes
	session, err := cfg.connectUntil(ctx, cfg.connectChecked)
	if err != nil {
		return nil, err
	}
	copies, err := replicas(ctx, session, cfg.Keyspace)
	if err != nil {
		session.Close()
		return nil, err
	}
	cfg.warnPeriodic(ctx, session)
	return newStore(&guarded{session: driver{session}, everywhere: func() bool { return nodes.count() <= copies }, log: cfg.Log}, cfg), nil
}

// Check returns CodeVersion unless this binary works with the schema of the keyspace.
func Check(ctx context.Context, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	session, err := cfg.connect(cfg.Request)
	if err != nil {
		return err
	}
	defer session.Close()
	return check(ctx, session, cfg.Keyspace)
}

func newStore(s session, cfg Config) *Store {
	id := core.NewID(time.Now())
	store := &Store{session: s, cfg: cfg, writer: string(id[:])}
	store.ctx, store.stop = context.WithCancelCause(context.Background())
	return store
}

// Majority implements metadata.Copied.
func (s *Store) Majority() *metadata.Majority { return &s.majority }

// connectUntil connects and checks the schema. It tries again until ctx ends: a node that has started just now may not
// see enough others to read the schema's version.
func (c Config) connectUntil(ctx context.Context, connect func(context.Context) (*gocql.Session, error)) (*gocql.Session, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last error
	failing := core.Recurring{Every: connectSay}
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			if last == nil {
				last = context.Cause(ctx)
			}
			return nil, core.Errorf(core.CodeUnavailable, "Cassandra was not reached in time: %w", last)
		}
		session, err := connect(ctx)
		if err == nil || core.CodeOf(err) != core.CodeUnavailable {
			return session, err
		}
		last = err
		if failing.Failed(time.Now()) {
			c.Log.Warn("Cassandra does not answer; this process tries again until it does", "hosts", c.Hosts, "error", err)
		}
		timer.Reset(connectPause)
	}
}

// connectChecked connects, and returns the errors of check besides.
func (c Config) connectChecked(ctx context.Context) (*gocql.Session, error) {
	session, err := c.connect(c.Request)
	if err != nil {
		return nil, err
	}
	if err := check(ctx, session, c.Keyspace); err != nil {
		session.Close()
		return nil, err
	}
	return session, nil
}

// commitLogSync reads when the node that answers makes changes durable: batch, group or periodic.
func commitLogSync(ctx context.Context, session *gocql.Session) (mode string, err error) {
	err = session.Query("SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'").WithContext(ctx).
		Consistency(gocql.One).Scan(&mode)
	return mode, err
}

// warnPeriodic logs a warning when the node that answers can forget what it acknowledged.
func (c Config) warnPeriodic(ctx context.Context, session *gocql.Session) {
	mode, err := commitLogSync(ctx, session)
	switch {
	case rejected(err):
		c.Log.Warn("The user may not read the setting commitlog_sync of Cassandra; GRANT SELECT ON TABLE system_views.settings, and make sure that it is batch or group", "error", err)
	case err != nil:
		c.Log.Warn("The setting commitlog_sync of Cassandra could not be read; make sure that it is batch or group", "error", err)
	case mode == "periodic":
		c.Log.Warn("Cassandra runs with commitlog_sync: periodic. It loses acknowledged changes when all nodes die at once; set it to batch or group")
	}
}

// begin starts a call: ctx has a deadline then, and ends when the store closes. end must be called. Errors: bad,
// CodeUnavailable.
func (s *Store) begin(ctx context.Context, bad error) (_ context.Context, end func(), _ error) {
	if bad != nil {
		return nil, nil, bad
	}
	ctx, release, err := s.hold(ctx)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancelDeadline := metadata.Deadline(ctx)
	ctx, cancelMost := context.WithTimeout(ctx, maxCall)
	return ctx, func() {
		cancelMost()
		cancelDeadline()
		release()
	}, nil
}

// hold keeps the session open until release is called; ctx ends when the store closes. CodeUnavailable.
func (s *Store) hold(ctx context.Context) (_ context.Context, release func(), _ error) {
	if ctx.Err() != nil {
		return nil, nil, core.Errorf(core.CodeUnavailable, "metadata was not asked: %w", context.Cause(ctx))
	}
	s.life.Lock()
	defer s.life.Unlock()
	if s.life.closed {
		return nil, nil, errClosed
	}
	s.life.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(s.ctx, func() { cancel(errClosed) })
	return ctx, func() {
		unhook()
		cancel(nil)
		s.life.calls.Done()
	}, nil
}

// name is the metadata table in Cassandra's keys.
func (s *Store) name(t metadata.Table) string { return s.prefix + t.Name }

// of are the values of a statement that names a row.
func (s *Store) of(t metadata.Table, k metadata.Key) []any {
	values := []any{s.name(t), []byte(k.Partition), []byte(k.Row)}
	if t.Rule == metadata.RulePut {
		values = append(values, rowBucket(t, k.Row))
	}
	return values
}

// Close implements metadata.Store.
func (s *Store) Close() error {
	s.life.Lock()
	was := s.life.closed
	s.life.closed = true
	s.life.Unlock()
	if was {
		return nil
	}
	s.stop(errClosed)
	s.life.calls.Wait()
	s.session.close()
	return nil
}
