package cli

import "testing"

func TestPurgeQueue(t *testing.T) {
	_, addr := newFakeServer(t)
	golden(t, "purge.txt", transcript(addr, []step{
		{line: "create queue /demo/a"},
		{line: "create group /demo/a billing --start earliest"},
		{line: "purge queue /demo/a --dry-run"},
		{line: "purge queue /demo/a --yes -o json"},
		{line: "purge queue /demo/a/billing.dlq --yes"},
		{line: "purge queue"},
	}))
}
