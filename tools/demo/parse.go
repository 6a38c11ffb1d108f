package demo

import (
	"context"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/columbamq/columba/client"
)

// maxError bounds a parser's message in a dead letter.
const maxError = 512

// parseFile parses a .go file; other files are no business of the parse group's.
func parseFile(dir, path string) error {
	if !strings.HasSuffix(path, ".go") {
		return nil
	}
	_, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, filepath.FromSlash(path)), nil, parser.SkipObjectResolution)
	if err != nil {
		// The message must not depend on where the tree lies.
		return parseError(strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""))
	}
	return nil
}

type parseError string

func (e parseError) Error() string {
	s := strings.ToValidUTF8(string(e), "?")
	if len(s) > maxError {
		s = s[:maxError]
		for !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
	}
	return s
}

// parse works for the parse group: what does not parse fails until it is a dead letter.
func (r *run) parse(ctx context.Context) error {
	return r.c.Work(ctx, filesQueue, parseGroup, func(_ context.Context, d *client.Delivery) error {
		r.parsed.note(d.Attempt)
		return parseFile(r.o.Dir, string(d.Body))
	}, client.Concurrency(parseWorkers), client.Prefetch(64))
}
