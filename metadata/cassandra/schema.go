package cassandra

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
)

// The files of the schema. Each is applied once, in the order of its number, and never changes.
//
//go:embed schema/*.cql
var schemaFiles embed.FS

// step is one file of the schema.
type step struct {
	number     int
	name       string
	statements []string
}

// steps returns the files in order, for a keyspace. Their numbers are 1, 2, 3 …
func steps(keyspace string) ([]step, error) {
	names, err := fs.Glob(schemaFiles, "schema/*.cql")
	if err != nil {
		return nil, err
	}
	var all []step
	for i, name := range names {
		digits, _, _ := strings.Cut(strings.TrimPrefix(name, "schema/"), "_")
		number, err := strconv.Atoi(digits)
		if err != nil || number != i+1 {
			return nil, core.Errorf(core.CodeInternal, "schema file %s is not number %d", name, i+1)
		}
		text, err := schemaFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, step{number, name, statements(strings.ReplaceAll(string(text), "KEYSPACE.", keyspace+"."))})
	}
	return all, nil
}

// statements splits a file of CQL at its semicolons, and drops lines of comments.
func statements(text string) []string {
	var code strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			code.WriteString(line)
		}
	}
	var all []string
	for s := range strings.SplitSeq(code.String(), ";") {
		if s = strings.TrimSpace(s); s != "" {
			all = append(all, s)
		}
	}
	return all
}

// Apply creates the keyspace and brings its schema to the newest version. It can be run again, also after it failed half
// way. Only one process at a time may run it: nodes that create the same table at the same time disagree about it.
// Changing a schema takes seconds: ctx needs a deadline of a minute.
func Apply(ctx context.Context, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	all, err := steps(cfg.Keyspace)
	if err != nil {
		return err
	}
	replication, err := cfg.replication()
	if err != nil {
		return err
	}
	session, err := cfg.connect(schemaTimeout)
	if err != nil {
		return err
	}
	defer session.Close()
	for _, text := range []string{
		fmt.Sprintf("CREATE KEYSPACE IF NOT EXISTS %s WITH replication = %s", cfg.Keyspace, replication),
		fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s.schema_step (owner text, step int, name text, PRIMARY KEY (owner, step))", cfg.Keyspace),
	} {
		if err := change(ctx, session, text); err != nil {
			return err
		}
	}
	at, err := schemaVersion(ctx, session, cfg.Keyspace)
	if err != nil {
		return err
	}
	if at > len(all) {
		return newerSchema(cfg.Keyspace, at, len(all))
	}
	for _, s := range all[at:] {
		for _, text := range s.statements {
			if err := change(ctx, session, text); err != nil {
				return err
			}
		}
		err := session.Query("INSERT INTO "+cfg.Keyspace+".schema_step (owner, step, name) VALUES ('columba', ?, ?)", s.number, s.name).
			WithContext(ctx).Consistency(gocql.Quorum).Exec()
		if err != nil {
			return core.Errorf(core.CodeUnavailable, "record schema step %d: %w; apply the schema again", s.number, err)
		}
	}
	return nil
}

// change executes one statement that changes the schema, and waits until all nodes that are up agree on it.
func change(ctx context.Context, session *gocql.Session, text string) error {
	if err := session.Query(text).WithContext(ctx).Exec(); err != nil {
		return core.Errorf(core.CodeUnavailable, "change the schema: %w; apply the schema again", err)
	}
	if err := session.AwaitSchemaAgreement(ctx); err != nil {
		return core.Errorf(core.CodeUnavailable, "the nodes do not agree on the schema: %w; apply the schema again", err)
	}
	return nil
}

// check returns CodeVersion unless this binary can work with the keyspace: with the newest schema that it knows, or
// the one before.
func check(ctx context.Context, session *gocql.Session, keyspace string) error {
	all, err := steps(keyspace)
	if err != nil {
		return err
	}
	at, err := schemaVersion(ctx, session, keyspace)
	if err != nil {
		return err
	}
	return accept(keyspace, at, len(all))
}

// accept decides whether a binary that knows the schema up to newest works with the schema at.
func accept(keyspace string, at, newest int) error {
	switch {
	case at > newest:
		return newerSchema(keyspace, at, newest)
	case at < max(newest-1, 1):
		return core.Errorf(core.CodeVersion, "keyspace %s has schema %d, this binary needs %d or %d; apply the schema",
			keyspace, at, max(newest-1, 1), newest)
	}
	return nil
}

func newerSchema(keyspace string, at, newest int) error {
	return core.Errorf(core.CodeVersion, "keyspace %s has schema %d, this binary knows %d; use a newer binary", keyspace, at, newest)
}

// schemaVersion returns the number of the last step that was applied, 0 when there is none.
func schemaVersion(ctx context.Context, session *gocql.Session, keyspace string) (int, error) {
	var at int
	err := session.Query("SELECT max(step) FROM " + keyspace + ".schema_step WHERE owner = 'columba'").WithContext(ctx).
		Consistency(gocql.Quorum).Scan(&at)
	if codeOf(err) == gocql.ErrCodeInvalid {
		return 0, nil // there is no such keyspace or table
	}
	if err != nil {
		return 0, core.Errorf(core.CodeUnavailable, "read the schema's version: %w", err)
	}
	return at, nil
}
