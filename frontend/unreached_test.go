package frontend

import (
	"strings"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestGroup_NotesControllersThatDidNotAnswer: the note says what follows if the network was cut, and what to do.
func TestGroup_NotesControllersThatDidNotAnswer(t *testing.T) {
	silent := []core.HostID{"ctl-2"}
	for _, c := range []struct {
		g    metadata.GroupRecord
		todo string
	}{
		{metadata.GroupRecord{Unreached: &silent}, "; seek it when the network is whole"},
		{metadata.GroupRecord{LastSeek: &metadata.Seek{Unreached: silent}}, "; repeat the seek when the network is whole"},
	} {
		note := groupToProto(c.g).Note
		if !strings.HasPrefix(note, "controllers [ctl-2] did not answer: if the network was cut, the group also gets messages") || !strings.HasSuffix(note, c.todo) {
			t.Errorf("note %q, want %q", note, c.todo)
		}
	}
}
