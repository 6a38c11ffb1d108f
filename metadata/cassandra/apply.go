package cassandra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
)

// Applied says what ApplySchema did.
type Applied struct {
	Keyspace    string
	Created     bool              // the keyspace was not there before
	Replication map[string]string // of the keyspace, as Cassandra has it: "class", and the replicas of each data centre
	// Differs: the configuration asks for another replication, which an existing keyspace does not get.
	Differs  bool
	From, To int // schema of the keyspace before and after; equal if there was nothing to do
}

// Apply is ApplySchema without what it did.
func Apply(ctx context.Context, cfg Config) error {
	_, err := ApplySchema(ctx, cfg, func() {})
	return err
}

// ApplySchema creates the keyspace, unless it is there, and brings its schema to the newest version. It can be run
// again, also after it failed half way, and by several processes at the same time. All nodes of the cluster must be up,
// unless the schema is the newest already. Changing a schema takes seconds for each table: ctx needs a deadline of
// minutes. changed is called after each change.
//
// A node that has just started does not know all others yet. So a new keyspace without a number of replicas waits, for
// at most half a minute, until three nodes are known, or as many as the configuration names.
//
// Errors: CodeBadArgument when the replication is not possible, or the user has no permission. CodeVersion when the
// schema is newer than this binary. CodeUnavailable: run it again.
func ApplySchema(ctx context.Context, cfg Config, changed func()) (Applied, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Applied{}, err
	}
	all, err := steps(cfg.Keyspace)
	if err != nil {
		return Applied{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	until := time.Now().Add(schemaTimeout)
	for {
		out, err := applyOnce(ctx, cfg, all, changed)
		if !errors.Is(err, errUnknownNodes) || time.Now().After(until) {
			return out, err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return out, err
		}
	}
}

// applyOnce asks the nodes anew which of them there are.
func applyOnce(ctx context.Context, cfg Config, all []step, changed func()) (Applied, error) {
	c, err := cfg.connectEach(schemaTimeout)
	if err != nil {
		return Applied{}, err
	}
	defer c.close()
	a := applier{cluster: c, cfg: cfg, steps: all, changed: changed, out: Applied{Keyspace: cfg.Keyspace}}
	err = a.run(ctx)
	return a.out, err
}

// applier is one call of ApplySchema.
type applier struct {
	cluster
	cfg     Config
	steps   []step
	changed func()
	out     Applied
}

func (a *applier) run(ctx context.Context) (err error) {
	nodes := a.members(ctx, a.cfg.Request)
	if ctx, err = through(ctx, nodes); err != nil {
		return err
	}
	replication, err := keyspaceReplication(ctx, a.session, a.cfg.Keyspace)
	if err != nil {
		return err
	}
	if replication != nil {
		if a.out.From, err = a.version(ctx); err != nil {
			return err
		}
		a.out.To, a.out.Replication = a.out.From, replication
		if a.out.From == len(a.steps) {
			return a.compare(nodes)
		}
	}
	if err := allUp(nodes); err != nil {
		return err
	}
	if replication == nil {
		if err := a.createKeyspace(ctx, nodes); err != nil {
			return err
		}
	}
	if err := a.compare(nodes); err != nil {
		return err
	}
	return a.applySteps(ctx)
}

// version is the schema's version; CodeVersion if this binary does not know it.
func (a *applier) version(ctx context.Context) (int, error) {
	at, err := schemaVersion(ctx, a.session, a.cfg.Keyspace)
	if err == nil && at > len(a.steps) {
		err = newerSchema(a.cfg.Keyspace, at, len(a.steps))
	}
	return at, err
}

func (a *applier) createKeyspace(ctx context.Context, nodes []NodeInfo) error {
	replicas, err := a.cfg.placement(nodes)
	if err != nil {
		return err
	}
	if err := a.change(ctx, fmt.Sprintf("CREATE KEYSPACE IF NOT EXISTS %s WITH replication = %s", a.cfg.Keyspace, cqlMap(replicationOptions(replicas)))); err != nil {
		return err
	}
	a.out.Created = true
	// Of two that create the keyspace at the same time one decides its replication.
	a.out.Replication, err = keyspaceReplication(ctx, a.session, a.cfg.Keyspace)
	return err
}

// compare finds out whether the keyspace has another replication than it was asked for, if any.
func (a *applier) compare(nodes []NodeInfo) error {
	if len(a.cfg.Replication) == 0 && a.cfg.Replicas == 0 {
		return nil
	}
	replicas, err := a.cfg.placement(nodes)
	if err != nil {
		return err
	}
	a.out.Differs = !maps.Equal(replicationOptions(replicas), a.out.Replication)
	return nil
}

// applySteps executes the steps that are missing. Another process may do the same at the same time.
func (a *applier) applySteps(ctx context.Context) error {
	if err := a.change(ctx, seedTable(a.cfg.Keyspace)); err != nil {
		return err
	}
	seed, err := agreedSeed(ctx, a.session, a.cfg.Keyspace)
	if err != nil {
		return err
	}
	if err := a.change(ctx, withID(stepTable(a.cfg.Keyspace), seed)); err != nil {
		return err
	}
	for a.out.To < len(a.steps) {
		s := a.steps[a.out.To]
		for _, text := range s.statements {
			if err := a.change(ctx, withID(text, seed)); err != nil {
				return err
			}
		}
		err := a.session.Query("INSERT INTO "+a.cfg.Keyspace+".schema_step (owner, step, name) VALUES ('columba', ?, ?)", s.number, s.name).
			WithContext(ctx).Consistency(gocql.Quorum).Exec()
		if err != nil {
			return schemaError(fmt.Sprintf("record schema step %d", s.number), err)
		}
		if a.out.To, err = a.version(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stepTable is the statement for the table of the steps that were applied.
func stepTable(keyspace string) string {
	return "CREATE TABLE IF NOT EXISTS " + keyspace + ".schema_step (owner text, step int, name text, PRIMARY KEY (owner, step)) WITH id = " + idMark +
		" AND speculative_retry = 'ALWAYS'" // servers that start read it
}

// change executes one statement that changes the schema, and waits until all nodes agree on it.
func (a *applier) change(ctx context.Context, text string) error {
	if err := a.session.Query(text).WithContext(ctx).Exec(); err != nil {
		return schemaError("change the schema", err)
	}
	a.changed()
	return a.agree(ctx, a.cfg.Request)
}

// schemaError is the error of one request about the schema.
func schemaError(what string, err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return core.Errorf(core.CodeDeadline, "%s: no answer in time; apply the schema again, with more time", what)
	case rejected(err):
		return core.Errorf(core.CodeBadArgument, "%s: Cassandra refuses it: %w", what, err)
	}
	return core.Errorf(core.CodeUnavailable, "%s: %w; apply the schema again", what, err)
}
