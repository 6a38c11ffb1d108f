package cassandra

import (
	"context"
	"embed"
	"io/fs"
	"strconv"
	"strings"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
)

// The files of the schema. Each is applied once, in the order of its number, and never changes once it was released.
// KEYSPACE and TABLE_ID in them stand for the keyspace, and for the id of the table that the statement creates. Two
// callers may execute the same file at the same time, so each statement can be repeated.
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
	case at == 0:
		return core.Errorf(core.CodeVersion, "keyspace %s has no schema; run `columba schema apply` first", keyspace)
	case at < newest-1:
		return core.Errorf(core.CodeVersion, "keyspace %s has schema %d, this binary needs %d or %d; run `columba schema apply` first",
			keyspace, at, newest-1, newest)
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
		Consistency(gocql.Quorum).Idempotent(true).RetryPolicy(&eachHost{}).Scan(&at)
	if codeOf(err) == gocql.ErrCodeInvalid {
		return 0, nil // there is no such keyspace or table
	}
	if rejected(err) {
		return 0, core.Errorf(core.CodeBadArgument, "Cassandra refuses to read the schema of keyspace %s: %w; grant the user SELECT and MODIFY on the keyspace", keyspace, err)
	}
	if err != nil {
		return 0, core.Errorf(core.CodeUnavailable, "the schema of keyspace %s could not be read from most of its replicas: %w; start more nodes of Cassandra", keyspace, err)
	}
	return at, nil
}
