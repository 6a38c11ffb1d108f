package metadata_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// oneCopy is metadata of which reads at One are of a copy that has no row.
type oneCopy struct {
	metadata.Store
	majority  metadata.Majority
	away      bool // no majority answers
	wholeAway bool // no copy does
	asked     []metadata.Consistency
}

func (o *oneCopy) Majority() *metadata.Majority { return &o.majority }

func (o *oneCopy) ask(ctx context.Context, c metadata.Consistency) error {
	if o.asked = append(o.asked, c); o.away && c != metadata.One || o.wholeAway {
		<-ctx.Done()
		return core.Errorf(core.CodeUnavailable, "nobody answers: %w", context.Cause(ctx))
	}
	return nil
}

func (o *oneCopy) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if err := o.ask(ctx, c); err != nil {
		return metadata.Row{}, err
	}
	if c == metadata.One {
		return metadata.Row{}, metadata.NoRow(t, k)
	}
	return o.Store.Get(ctx, t, k, c)
}

func (o *oneCopy) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if err := o.ask(ctx, c); err != nil || c == metadata.One {
		return nil, false, err
	}
	return o.Store.List(ctx, t, partition, after, limit, c)
}

// filled is metadata with three rows of one partition.
func filled(t *testing.T) *oneCopy {
	s := memory.New()
	t.Cleanup(func() { s.Close() })
	for epoch := range uint64(3) {
		k := metadata.DoneKey(core.GroupID{ID: core.ID{1}}, core.ExtentID{ID: core.ID{1}}, epoch)
		if err := metadata.Write(t.Context(), s, metadata.Dones, k, metadata.DoneRecord{}, time.Now(), 0, metadata.Quorum); err != nil {
			t.Fatal(err)
		}
	}
	return &oneCopy{Store: s}
}

// TestQuorumOrOne: what a majority has is read, and what one copy has while none answers. Nobody waits longer than
// MajorityWait for a majority, and nobody at all right after another has.
func TestQuorumOrOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := filled(t)
		s := metadata.QuorumOrOne(o)
		rows := func() (n int, took time.Duration) {
			began := time.Now()
			for _, err := range metadata.All[metadata.DoneRecord](t.Context(), s, metadata.Dones, core.ID{1}.String(), metadata.Quorum) {
				if n++; err != nil {
					t.Error(err)
				}
			}
			return n, time.Since(began)
		}
		for _, step := range []struct {
			name  string
			away  bool
			pause time.Duration
			want  int
			took  time.Duration
		}{
			{"a majority", false, 0, 3, 0},
			{"none", true, 0, 0, metadata.MajorityWait},
			{"none, as is known", true, 0, 0, 0},
			{"none for longer", true, 2 * time.Second, 0, metadata.MajorityWait},
			{"a majority again", false, 2 * time.Second, 3, 0},
		} {
			time.Sleep(step.pause)
			o.away = step.away
			if n, took := rows(); n != step.want || took != step.took {
				t.Errorf("%s: %d rows after %s, want %d after %s", step.name, n, took, step.want, step.took)
			}
		}
		key := metadata.DoneKey(core.GroupID{ID: core.ID{1}}, core.ExtentID{ID: core.ID{1}}, 2)
		for _, away := range []bool{false, true} {
			o.away = away
			_, err := s.Get(t.Context(), metadata.Dones, key, metadata.Quorum)
			found, err2 := metadata.GetRows(t.Context(), s, metadata.Dones, []metadata.Key{key}, metadata.Quorum)
			if missing := core.CodeOf(err) == core.CodeNotFound; missing != away || err2 != nil || len(found) == 0 != away {
				t.Errorf("without a majority %t: %v; %d rows, %v", away, err, len(found), err2)
			}
		}
		o.asked = nil
		for _, c := range []metadata.Consistency{metadata.One, metadata.Serial} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, err := s.Get(ctx, metadata.Dones, key, c)
			cancel()
			if err == nil || o.asked[len(o.asked)-1] != c {
				t.Errorf("asked at %v instead of %v, %v", o.asked, c, err)
			}
		}
	})
}

// TestOrOne_NoCopyAnswers: a read is refused soon when no copy answers either.
func TestOrOne_NoCopyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := filled(t)
		o.wholeAway = true
		key := metadata.DoneKey(core.GroupID{ID: core.ID{1}}, core.ExtentID{ID: core.ID{1}}, 2)
		began := time.Now()
		_, err := metadata.QuorumOrOne(o).Get(t.Context(), metadata.Dones, key, metadata.Quorum)
		if took := time.Since(began); core.CodeOf(err) != core.CodeNoMajority || took != 2*metadata.MajorityWait {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// TestOrOne_OnePlace: where the metadata are in one place, nothing is read in another way while they do not answer.
func TestOrOne_OnePlace(t *testing.T) {
	store := memory.New()
	defer store.Close()
	for _, s := range []metadata.Store{metadata.QuorumOrOne(store), metadata.Refusing(store)} {
		if metadata.MajorityOf(s) != nil {
			t.Errorf("%T counts as one of several copies", s)
		}
	}
	away := core.Errorf(core.CodeUnavailable, "no answer")
	for _, s := range []metadata.Store{store, &oneCopy{Store: store}} {
		var asked []metadata.Consistency
		_, err := metadata.SerialOrOne(t.Context(), s, func(_ context.Context, c metadata.Consistency) (int, error) {
			asked = append(asked, c)
			return 0, away
		})
		want := []metadata.Consistency{metadata.Serial}
		if metadata.MajorityOf(s) != nil {
			want = append(want, metadata.One)
		}
		code := map[int]core.Code{1: core.CodeUnavailable, 2: core.CodeNoMajority}[len(want)]
		if core.CodeOf(err) != code || !slices.Equal(asked, want) {
			t.Errorf("%T: asked at %v, want %v; %v", s, asked, want, err)
		}
	}
}

// TestSerialOrOne_MissingInOneCopy: that one copy lacks a row does not show that there is none.
func TestSerialOrOne_MissingInOneCopy(t *testing.T) {
	o := &oneCopy{}
	_, err := metadata.SerialOrOne(t.Context(), o, func(_ context.Context, c metadata.Consistency) (int, error) {
		if c == metadata.One {
			return 0, core.Errorf(core.CodeNotFound, "no such row")
		}
		return 0, core.Errorf(core.CodeUnavailable, "no majority")
	})
	if core.CodeOf(err) != core.CodeNoMajority || !strings.Contains(err.Error(), "no such row") {
		t.Errorf("got %v", err)
	}
}

// TestListOperations_ThatOneCopyLacks: an operation is listed that one copy of the metadata has no row of.
func TestListOperations_ThatOneCopyLacks(t *testing.T) {
	s := memory.New()
	defer s.Close()
	object := core.ID{1}
	if err := metadata.Create(t.Context(), s, metadata.Operations, metadata.OperationKey(object), metadata.OperationRecord{ID: core.ID{2}}); err != nil {
		t.Fatal(err)
	}
	if all, err := metadata.ListOperations(t.Context(), &oneCopy{Store: s}, true); err != nil || len(all) != 1 {
		t.Errorf("%d operations are listed, %v; want 1", len(all), err)
	}
}
