package outputhost

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Pauses between writes at Quorum while they fail: without a majority, not every share has to find that out.
const (
	minQuorumPause = 250 * time.Millisecond
	maxQuorumPause = 4 * time.Second
)

// majority remembers that a write at Quorum failed a moment ago. Safe for concurrent use.
type majority struct {
	mu struct {
		sync.Mutex
		pause time.Duration // the last one; 0: the last write succeeded
		until time.Duration // see Host.elapsed
	}
}

// lacks reports whether a write at Quorum is not to be tried yet.
func (m *majority) lacks(now time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return now < m.mu.until
}

// note takes over how a write at Quorum ended.
func (m *majority) note(err error, now time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.mu.pause, m.mu.until = 0, 0
	case now >= m.mu.until: // else another write of these moments has failed
		m.mu.pause = min(max(2*m.mu.pause, minQuorumPause), maxQuorumPause)
		m.mu.until = now + m.mu.pause
	}
}

// noMajority reports whether a write at Quorum failed a moment ago.
func (s *saver) noMajority(now time.Time) bool { return s.majority.lacks(s.h.elapsed(now)) }

// atQuorum does a write at Quorum, unless one failed a moment ago.
func (s *saver) atQuorum(ctx context.Context, write func(context.Context) error) error {
	if s.noMajority(s.h.deps.Now()) {
		return core.Errorf(core.CodeUnavailable, "the metadata had no majority a moment ago")
	}
	err := write(ctx)
	failed := err
	if e := (*metadata.UnstoredError)(nil); errors.As(err, &e) && len(e.Rows) < e.Of { // others had one
		failed = nil
	}
	s.majority.note(failed, s.h.elapsed(s.h.deps.Now()))
	return err
}

// secured is how far the progress that a share has merged from checkpoints of other owners has come.
type secured uint8

const (
	securedNot     secured = iota // it may be lost with one copy of the metadata
	securedAsked                  // the next checkpoint is to be written at Quorum, too
	securedPending                // that is under way
	securedAll                    // the checkpoints of other owners are not needed any more
)

// secure writes checkpoints that are saved at One at Quorum, too, if that was asked for.
func (g *group) secure(ctx context.Context, parts []saved) {
	var rows []metadata.Row
	for _, p := range parts {
		if p.secure {
			rows = append(rows, p.row)
		}
	}
	if len(rows) == 0 {
		return
	}
	err := g.h.saver.atQuorum(ctx, func(ctx context.Context) error {
		return g.h.deps.Meta.PutAll(ctx, metadata.Checkpoints, rows, metadata.Quorum)
	})
	unstored := metadata.Unstored(err, len(rows))
	if err != nil {
		g.h.log.Info("cannot save checkpoints at quorum; those of earlier owners stay, and the host tries again", "queue", g.queuePath, "group", g.name, "checkpoints", len(unstored), "err", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	row := 0
	for _, p := range parts {
		if p.secure {
			p.securedLocked(!slices.Contains(unstored, row))
			row++
		}
	}
}

// securedLocked ends what secure does for a part. If the share has merged more since the checkpoint was made, that is
// not in it.
func (p saved) securedLocked(all bool) {
	switch {
	case !p.secure || p.s.secured != securedPending:
	case all:
		p.s.secured = securedAll
	default:
		p.s.secured = securedNot
	}
}

// putGiven writes the checkpoints of shares that were given away: at Quorum, where the next owner reads them, and at
// One those for which that fails. It answers which of them may not be stored, and why.
func (s *saver) putGiven(ctx context.Context, rows []metadata.Row) (unstored []int, err error) {
	put := func(ctx context.Context, rows []metadata.Row, c metadata.Consistency) error {
		return s.h.deps.Meta.PutAll(ctx, metadata.Checkpoints, rows, c)
	}
	err = s.atQuorum(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, givenAtQuorum)
		defer cancel()
		return put(ctx, rows, metadata.Quorum)
	})
	weak := metadata.Unstored(err, len(rows))
	if len(weak) == 0 {
		return nil, nil
	}
	again := make([]metadata.Row, len(weak))
	for i, row := range weak {
		again[i] = rows[row]
	}
	one, cancel := halfOf(ctx, s.h.cfg.CallTimeout)
	defer cancel()
	err = put(one, again, metadata.One)
	for _, i := range metadata.Unstored(err, len(again)) {
		unstored = append(unstored, weak[i])
	}
	return unstored, err
}

// givenAtQuorum is how long a share that moves waits for a majority of the metadata.
const givenAtQuorum = time.Second
