package migration

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/memory"
)

// unsure is a target of which a tenth of the calls fail: reads and writes are refused, and writes time out. Of those
// that time out all rows may be written, some, or none, at once or later.
type unsure struct {
	*faulty.Store
	behind *memory.Store
	mu     struct {
		sync.Mutex
		rows map[Position]metadata.Stored
	}
}

func newUnsure(faults faulty.Faults) *unsure {
	u := &unsure{behind: memory.New()}
	u.Store = faulty.New(u.behind, faults)
	u.mu.rows = make(map[Position]metadata.Stored)
	return u
}

func (u *unsure) Parts(rows []metadata.Stored) [][]metadata.Stored {
	return slices.Collect(slices.Chunk(slices.Clone(rows), 10))
}

func (u *unsure) Load(ctx context.Context, rows []metadata.Stored) error {
	for half := range slices.Chunk(rows, max(1, len(rows)/2)) {
		err := u.Change(ctx, func(context.Context) error {
			u.mu.Lock()
			defer u.mu.Unlock()
			for _, r := range half {
				u.mu.rows[PositionOf(r)] = r
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *unsure) Page(ctx context.Context, place []byte) (rows []metadata.Stored, next []byte, err error) {
	err = u.Look(ctx, func(context.Context) error {
		u.mu.Lock()
		there := maps.Clone(u.mu.rows)
		u.mu.Unlock()
		rows, next, err = page(u.behind, there, place)
		return err
	})
	return rows, next, err
}

var tenth = faulty.Faults{Before: 0.1, Lost: 0.1, CAS: 0.1, Timeout: 3 * time.Second, Delay: 30 * time.Millisecond}

// TestCopy_CallsThatFail: the copy ends, and its rows are all there.
func TestCopy_CallsThatFail(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			faults := tenth
			faults.Seed = seed
			from, to := some(2500), newUnsure(faults)
			defer to.Close()
			var last Progress
			counts, err := Copy(t.Context(), from, to, call, func(p Progress) { last = p })
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if err := Finish(t.Context(), to, call); err != nil {
				t.Fatalf("seed %d: finish: %v", seed, err)
			}
			if len(counts) != 3 || len(to.mu.rows) != len(from) || last.Again < 25 || !last.Check {
				t.Errorf("seed %d: %v, %d rows of %d, at last %+v", seed, counts, len(to.mu.rows), len(from), last)
			}
			wantCode(t, "a server starts twice", errors.Join(Use(t.Context(), to.behind), Use(t.Context(), to.behind)), "", "")
		})
	}
}

// TestCopy_KilledAgainAndAgain: calls fail besides. Each call goes on where the one before was.
func TestCopy_KilledAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := some(4500), newUnsure(tenth)
		defer to.Close()
		for run := 1; ; run++ {
			ctx, kill := context.WithTimeout(t.Context(), time.Duration(run)*500*time.Millisecond) // so that it ends some day
			this := Call{Cluster: cluster, Copier: core.NewID(time.UnixMilli(int64(run)))}
			_, err := Copy(ctx, from, to, this, quiet)
			kill()
			if err == nil {
				if run < 3 {
					t.Errorf("it was killed %d times only", run-1)
				}
				break
			}
			if ctx.Err() == nil || run == 100 {
				t.Fatalf("run %d: %v", run, err)
			}
		}
		if len(to.mu.rows) != len(from) {
			t.Errorf("%d rows of %d", len(to.mu.rows), len(from))
		}
	})
}

// TestCopy_NothingAnswers: the copy ends after two minutes, and says what to do. Run again it goes on.
func TestCopy_NothingAnswers(t *testing.T) {
	refuse := func() error { return core.Errorf(core.CodeUnavailable, "no node answers") }
	unknown := func() error { return core.Errorf(core.CodeUnknown, "a node timed out") }
	hang := func() error {
		<-time.After(metadata.DefaultDeadline)
		return core.Errorf(core.CodeUnknown, "no answer in time")
	}
	for what, fails := range map[string]func() error{"it refuses": refuse, "it times out": unknown, "it hangs": hang} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, to := some(2500), newTarget(t)
				var fail func() error
				to.fail = func(load int) error {
					if load >= 2 && fail != nil {
						return fail()
					}
					return nil
				}
				fail = fails
				began, silences := time.Now(), 0
				_, err := Copy(t.Context(), from, to, call, func(p Progress) {
					if p.Silent > 0 {
						if silences++; p.Err == nil || p.Silent < sayAfter || p.Rows != window {
							t.Errorf("told %+v", p)
						}
					}
				})
				wantCode(t, "the copy", err, core.CodeUnavailable, "no call to the new metadata was answered for 2m")
				wantCode(t, "the copy", err, core.CodeUnavailable, "run the same command again")
				if took := time.Since(began); took < maxSilence || took > maxSilence+20*time.Second {
					t.Errorf("it took %s", took)
				}
				if silences < 5 || silences > 12 {
					t.Errorf("the silence was told %d times", silences)
				}
				fail = nil
				loads := to.loads
				if _, err := Copy(t.Context(), from, to, second, quiet); err != nil {
					t.Fatal(err)
				}
				if to.loads != loads+2 {
					t.Errorf("%d windows were written again", to.loads-loads)
				}
			})
		})
	}
}

// TestCopy_NothingAnswersFromTheStart: neither does the record.
func TestCopy_NothingAnswersFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newUnsure(faulty.Faults{Before: 1})
		defer to.Close()
		_, err := Copy(t.Context(), some(10), to, call, quiet)
		wantCode(t, "the copy", err, core.CodeUnavailable, "was answered for 2m")
		wantCode(t, "its end", Finish(t.Context(), to, call), core.CodeUnavailable, "was answered for 2m")
	})
}

// TestCopy_ANodeComesBack: an outage of less than two minutes ends no copy.
func TestCopy_ANodeComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to, began := some(2500), newTarget(t), time.Now()
		to.fail = func(load int) error {
			if load >= 2 && time.Since(began) < 110*time.Second {
				return core.Errorf(core.CodeUnavailable, "no node answers")
			}
			return nil
		}
		if _, err := Copy(t.Context(), from, to, call, quiet); err != nil {
			t.Error(err)
		}
	})
}

// TestCopy_AnotherTakesOverMeanwhile: rows that could not be written for long are not written any more once another
// call has taken over.
func TestCopy_AnotherTakesOverMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to, began := some(2500), newTarget(t), time.Now()
		var taken time.Time
		to.fail = func(load int) error {
			switch {
			case load < 2:
				return nil
			case taken.IsZero():
				if _, err := begin(t.Context(), newLink(quiet), to, second); err != nil {
					t.Error(err)
				}
				taken = time.Now()
			case time.Since(taken) > lookAgain:
				t.Errorf("rows are written %s after another call took over", time.Since(taken))
			}
			return core.Errorf(core.CodeUnknown, "a node timed out")
		}
		_, err := Copy(t.Context(), from, to, call, quiet)
		wantCode(t, "the first call", err, core.CodeConflict, "has begun since")
		if took := time.Since(began); took > 2*lookAgain {
			t.Errorf("it ended after %s", took)
		}
	})
}

// TestCopy_Interrupted: an interrupt ends a pause between two tries.
func TestCopy_Interrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newTarget(t)
		to.fail = func(int) error { return core.Errorf(core.CodeUnavailable, "no node answers") }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err := Copy(ctx, some(10), to, call, quiet)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no node answers") || time.Since(began) != time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
