package metadata_test

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

func TestClusterID(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	known := core.NewID(now)
	for _, tc := range []struct {
		name  string
		old   bool // the metadata have settings of an older version
		known core.ID
		want  core.Code
	}{
		{"new metadata of a new host", false, core.ID{}, ""},
		{"old metadata of a host that met no cluster", true, core.ID{}, ""},
		{"old metadata of a host that did", true, known, ""},
		{"new metadata of a host that belongs to a cluster", false, known, core.CodeConflict},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := memory.New()
			defer s.Close()
			if tc.old {
				if err := s.Insert(t.Context(), metadata.Settings, metadata.SettingKey("copies"), []byte("{}")); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := metadata.ReadClusterID(t.Context(), s); core.CodeOf(err) != core.CodeNotFound {
				t.Errorf("before: %v, want %s", err, core.CodeNotFound)
			}
			id, err := metadata.ClusterID(t.Context(), s, tc.known, now)
			if core.CodeOf(err) != tc.want {
				t.Fatalf("got %v, want code %q", err, tc.want)
			}
			if err != nil {
				return
			}
			if id.IsZero() || !tc.known.IsZero() && id != tc.known {
				t.Errorf("the id is %s, the host knew %s", id, tc.known)
			}
			for _, again := range []core.ID{{}, id} {
				if got, err := metadata.ClusterID(t.Context(), s, again, now); err != nil || got != id {
					t.Errorf("asked again knowing %s: %s, %v, want %s", again, got, err, id)
				}
			}
			if _, err := metadata.ClusterID(t.Context(), s, core.NewID(now), now); core.CodeOf(err) != core.CodeConflict {
				t.Errorf("a host of another cluster got %v, want %s", err, core.CodeConflict)
			}
		})
	}
}
