package metadata_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// severed is metadata of several copies, which are cut off from each other for a while. A change that is sent then is
// lost.
type severed struct {
	oneCopy
	until time.Time // no majority answers
	sent  int       // changes
	reads int
}

func (l *severed) wait(ctx context.Context, code core.Code) error {
	select {
	case <-time.After(time.Until(l.until)):
		return nil
	case <-ctx.Done():
		return core.Errorf(code, "no answer: %w", context.Cause(ctx))
	}
}

func (l *severed) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	l.reads++
	if err := l.wait(ctx, core.CodeUnavailable); err != nil {
		return metadata.Row{}, err
	}
	return l.Store.Get(ctx, t, k, c)
}

func (l *severed) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	l.sent++
	if err := l.wait(ctx, core.CodeUnknown); err != nil {
		return err
	}
	return l.Store.Insert(ctx, t, k, value)
}

func (l *severed) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	l.sent++
	l.until = time.Now().Add(time.Hour)
	return l.wait(ctx, core.CodeUnknown)
}

func (l *severed) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	l.sent++
	return l.wait(ctx, core.CodeUnknown)
}

// TestRefusing: without a majority a change is refused soon, and not sent. A loss of a second and a half fails nothing.
func TestRefusing(t *testing.T) {
	key := metadata.OperationKey(core.ID{1})
	calls := map[string]func(context.Context, metadata.Store) error{
		"create": func(ctx context.Context, s metadata.Store) error {
			return metadata.Create(ctx, s, metadata.Operations, key, metadata.OperationRecord{ID: core.ID{2}})
		},
		"change": func(ctx context.Context, s metadata.Store) error {
			_, err := metadata.Change(ctx, s, metadata.Operations, key, func(*metadata.OperationRecord) error { return metadata.ErrNoChange })
			if core.CodeOf(err) == core.CodeNotFound { // a majority has said so
				err = nil
			}
			return err
		},
		"audit": func(ctx context.Context, s metadata.Store) error {
			_, err := metadata.BeginAudit(ctx, s, "who", "what", "object", time.Now)
			return err
		},
	}
	for name, call := range calls {
		for _, lost := range []time.Duration{0, 1500 * time.Millisecond, time.Hour} {
			t.Run(name+" "+lost.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					l := &severed{oneCopy: *filled(t), until: began.Add(lost)}
					err := call(t.Context(), metadata.Refusing(l))
					took := time.Since(began)
					if lost < metadata.ChangeWait {
						if err != nil || took != lost {
							t.Errorf("%v after %s", err, took)
						}
						return
					}
					if core.CodeOf(err) != core.CodeNoMajority || !strings.Contains(err.Error(), "nothing can be changed") || took != metadata.ChangeWait || l.sent > 0 {
						t.Errorf("%v after %s, %d sent", err, took, l.sent)
					}
					if !l.majority.Lacks() {
						t.Error("nobody knows that there is no majority")
					}
				})
			})
		}
	}
}

// TestRefusing_SentChangeIsUnknown: a change that was sent may be stored, so it is never called refused.
func TestRefusing_SentChangeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &severed{oneCopy: *filled(t)}
		key := metadata.OperationKey(core.ID{1})
		s := metadata.Refusing(l)
		if err := metadata.Create(t.Context(), s, metadata.Operations, key, metadata.OperationRecord{ID: core.ID{2}}); err != nil {
			t.Fatal(err)
		}
		_, err := metadata.Change(t.Context(), s, metadata.Operations, key, func(o *metadata.OperationRecord) error { o.Name = "x"; return nil })
		if core.CodeOf(err) != core.CodeUnknown {
			t.Errorf("got %v", err)
		}
	})
}

// TestRefusing_ReadsUnlessAMajorityAnswered counts the readings before changes that follow one another. An answer of a
// majority, to a reading or to a change, spares the next change its reading for a moment.
func TestRefusing_ReadsUnlessAMajorityAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &severed{oneCopy: *filled(t)}
		s := metadata.Refusing(l)
		made := byte(0)
		create := func() error {
			made++
			return metadata.Create(t.Context(), s, metadata.Operations, metadata.OperationKey(core.ID{made}), metadata.OperationRecord{ID: core.ID{made}})
		}
		for _, c := range []struct {
			what  string
			pause time.Duration
			reads int
		}{{"the first", 0, 1}, {"one after it", 0, 0}, {"another", 50 * time.Millisecond, 0}, {"one much later", time.Second, 1}} {
			<-time.After(c.pause)
			l.reads = 0
			if err := create(); err != nil || l.reads != c.reads {
				t.Errorf("%s: %d readings, %v; want %d", c.what, l.reads, err, c.reads)
			}
		}
		l.until = time.Now().Add(time.Hour)
		if _, err := s.Get(t.Context(), metadata.Operations, metadata.OperationKey(core.ID{1}), metadata.Quorum); core.CodeOf(err) != core.CodeNoMajority {
			t.Fatal(err)
		}
		sent := l.sent
		if err := create(); core.CodeOf(err) != core.CodeNoMajority || l.sent > sent {
			t.Errorf("after a reading that no majority answered: %v, %d sent", err, l.sent-sent)
		}
	})
}

// refuses is metadata that refuse each change since too few copies answer.
type refuses struct{ oneCopy }

func (*refuses) Insert(context.Context, metadata.Table, metadata.Key, []byte) error {
	return core.Errorf(core.CodeUnavailable, "too few copies answer")
}

// TestRefusing_LostSinceTheAnswer: a majority answered a moment ago, and the change finds none. Nothing was done, and
// the next change reads first.
func TestRefusing_LostSinceTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &refuses{oneCopy: *filled(t)}
		s := metadata.Refusing(l)
		key := metadata.OperationKey(core.ID{1})
		if _, err := s.Get(t.Context(), metadata.Operations, key, metadata.Quorum); core.CodeOf(err) != core.CodeNotFound {
			t.Fatal(err)
		}
		for _, reads := range []int{1, 2} {
			err := metadata.Create(t.Context(), s, metadata.Operations, key, metadata.OperationRecord{ID: core.ID{1}})
			if core.CodeOf(err) != core.CodeNoMajority || !l.majority.Lacks() || len(l.asked) != reads {
				t.Errorf("%v after %d readings, want %d", err, len(l.asked), reads)
			}
		}
	})
}

// noCopy is metadata of several copies, of which none is reached.
type noCopy struct{ oneCopy }

func (*noCopy) Get(context.Context, metadata.Table, metadata.Key, metadata.Consistency) (metadata.Row, error) {
	return metadata.Row{}, core.Errorf(core.CodeUnavailable, "no hosts available")
}

// TestRefusing_Reads: a read says that this cannot be read, and a read that belongs to a change, that nothing can be
// changed. A read of one copy has the same code as one of a majority.
func TestRefusing_Reads(t *testing.T) {
	s, key := metadata.Refusing(&noCopy{oneCopy: *filled(t)}), metadata.OperationKey(core.ID{1})
	for _, c := range []struct {
		ctx  context.Context
		at   metadata.Consistency
		says string
	}{
		{t.Context(), metadata.Quorum, "no majority of the metadata answers, so this cannot be read"},
		{t.Context(), metadata.Serial, "no majority of the metadata answers, so this cannot be read"},
		{t.Context(), metadata.One, "no copy of the metadata answers"},
		{metadata.ForChange(t.Context()), metadata.Serial, "no majority of the metadata answers, so nothing can be changed"},
	} {
		if _, err := s.Get(c.ctx, metadata.Operations, key, c.at); core.CodeOf(err) != core.CodeNoMajority || !strings.Contains(err.Error(), c.says) {
			t.Errorf("got %v, want %s", err, c.says)
		}
	}
}
