package pebble

import (
	"path/filepath"
	"testing"

	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/metadatatest"
)

func openTest(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	metadatatest.Run(t,
		func(t *testing.T) metadata.Store { return openTest(t, filepath.Join(t.TempDir(), "metadata")) },
		metadatatest.WithReopen(func(t *testing.T, s metadata.Store) metadata.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return openTest(t, s.(*Store).dir)
		}))
}
