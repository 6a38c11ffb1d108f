package cassandra

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

func TestSteps(t *testing.T) {
	all, err := steps("ks")
	if err != nil || len(all) == 0 {
		t.Fatalf("%d steps, %v", len(all), err)
	}
	for _, s := range all {
		for _, text := range s.statements {
			if !strings.Contains(text, " IF NOT EXISTS ks.") || strings.Contains(text, ";") {
				t.Errorf("%s cannot be applied twice, or not in a keyspace: %s", s.name, text)
			}
			if table := createdTable(text); table != "" && strings.Count(text, "id = "+idMark) != 1 {
				t.Errorf("%s creates %s without an id that all callers know: %s", s.name, table, text)
			}
		}
	}
}

func TestAccept(t *testing.T) {
	for _, test := range []struct {
		at, newest int
		want       core.Code
	}{
		{0, 1, core.CodeVersion}, {1, 1, ""}, {2, 1, core.CodeVersion},
		{0, 3, core.CodeVersion}, {1, 3, core.CodeVersion}, {2, 3, ""}, {3, 3, ""}, {4, 3, core.CodeVersion},
	} {
		if err := accept("k", test.at, test.newest); core.CodeOf(err) != test.want {
			t.Errorf("schema %d, binary %d: got %v, want code %q", test.at, test.newest, err, test.want)
		}
	}
}

// Open tries again while no node answers, and says so.
func TestOpen_NobodyAnswers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var said strings.Builder
	var once sync.Once
	cfg := Config{Local: "127.0.0.1:1", Connect: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(writerFunc(func(b []byte) {
		said.Write(b)
		once.Do(cancel)
	}), nil))}
	if _, err := Open(ctx, cfg); core.CodeOf(err) != core.CodeUnavailable {
		t.Errorf("got %v, want code %q", err, core.CodeUnavailable)
	}
	if !strings.Contains(said.String(), "127.0.0.1:1") {
		t.Errorf("the log does not name the host: %s", said.String())
	}
}

type writerFunc func([]byte)

func (w writerFunc) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

func TestStore_UnlistedTable(t *testing.T) {
	s := scripted(&script{})
	defer s.Close()
	if _, _, err := s.List(t.Context(), metadata.Seals, metadata.PartitionID, "", 1, metadata.One); core.CodeOf(err) != core.CodeUnsupported {
		t.Errorf("got %v, want code %q", err, core.CodeUnsupported)
	}
}
