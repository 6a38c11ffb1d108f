package telemetry

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
)

// Bounds of the lines that a logger of LimitBySource writes.
const (
	sourceBurst  = 10               // lines of one message and source at once
	sourceEvery  = 10 * time.Second // then one in this time
	messageBurst = 100              // lines of one message of all sources at once
	messageEvery = time.Second      // then one in this time
	maxSources   = 1024             // pairs of message and source that are counted apart; the others share their message's count
	maxValue     = 1 << 10          // bytes of an attribute; the rest is cut
)

// LimitBySource answers a logger for lines that input from outside causes. It writes at most 10 lines of one message
// and one source at once and then one every 10 s, and of one message from all sources 100 at once and then one a
// second. The next line that it writes of a message and source says in KeySuppressed how many it left out; it sums up
// those of sources that went silent in one line a minute, at the next line that anybody writes.
//
// The source is the value of KeyPeer, or else of KeyAddr, without its port; lines without either have one source
// together. A value longer than 1 KiB is cut. Loggers made by With and WithGroup share the counts. Messages must be
// constants: a message is part of the key. Safe for concurrent use.
func LimitBySource(log *slog.Logger) *slog.Logger {
	l := &limits{next: log.Handler()}
	l.mu.sources = make(map[source]*allowance)
	l.mu.messages = make(map[string]*allowance)
	return slog.New(&limited{Handler: log.Handler(), limits: l})
}

// limited is a handler that drops what its limits do not allow.
type limited struct {
	slog.Handler
	limits *limits
	peer   string // of With
}

// WithAttrs implements slog.Handler.
func (h *limited) WithAttrs(attrs []slog.Attr) slog.Handler {
	peer := h.peer
	for _, a := range attrs {
		if a.Key == KeyPeer {
			peer = sourceOf(a)
		}
	}
	return &limited{h.Handler.WithAttrs(attrs), h.limits, peer}
}

// WithGroup implements slog.Handler.
func (h *limited) WithGroup(name string) slog.Handler {
	return &limited{h.Handler.WithGroup(name), h.limits, h.peer}
}

// Handle implements slog.Handler.
func (h *limited) Handle(ctx context.Context, r slog.Record) error {
	from := source{r.Message, h.peer}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == KeyPeer || a.Key == KeyAddr && from.peer == "" {
			from.peer = sourceOf(a)
		}
		return true
	})
	suppressed, silent, write := h.limits.admit(from, r.Time)
	if silent > 0 {
		sum := slog.NewRecord(r.Time, slog.LevelWarn, "log lines of silent sources suppressed", 0)
		sum.AddAttrs(slog.Uint64(KeySuppressed, silent))
		if err := h.limits.next.Handle(ctx, sum); err != nil {
			return err
		}
	}
	if !write {
		return nil
	}
	out := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(cut(a))
		return true
	})
	if suppressed > 0 {
		out.AddAttrs(slog.Uint64(KeySuppressed, suppressed))
	}
	return h.Handler.Handle(ctx, out)
}

// cut bounds the length of a text or an error, which may repeat what a peer sent.
func cut(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	if k := v.Kind(); k != slog.KindString && k != slog.KindAny {
		return a
	}
	text := v.String()
	if len(text) <= maxValue {
		return a
	}
	return slog.String(a.Key, strings.ToValidUTF8(text[:maxValue], "")+"…")
}

// sourceOf is the address without its port: each connection of a peer has another one.
func sourceOf(a slog.Attr) string {
	addr := a.Value.Resolve().String()
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

type source struct{ message, peer string }

// limits count lines. Both maps are bounded: sources by maxSources, messages by how many constants the program has.
type limits struct {
	next slog.Handler // without attributes
	mu   struct {
		sync.Mutex
		sources  map[source]*allowance
		messages map[string]*allowance
		swept    time.Time
	}
}

// allowance is how many lines may be written at once. It grows by one every so often, up to a burst.
type allowance struct {
	left       int
	grown      time.Time // when left last grew
	suppressed uint64    // since the last line that was written
}

// grow adds what has come together by now.
func (a *allowance) grow(now time.Time, burst int, every time.Duration) {
	if n := int64(now.Sub(a.grown) / every); n > 0 {
		a.left = int(min(int64(a.left)+n, int64(burst)))
		a.grown = a.grown.Add(time.Duration(n) * every)
	}
}

// admit reports whether a line is written, how many of its kind were left out before it, and how many lines of silent
// sources to report.
func (l *limits) admit(from source, now time.Time) (suppressed, silent uint64, write bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	silent = l.sweepLocked(now)
	all := l.mu.messages[from.message]
	if all == nil {
		all = &allowance{left: messageBurst, grown: now}
		l.mu.messages[from.message] = all
	}
	all.grow(now, messageBurst, messageEvery)
	own := l.mu.sources[from]
	switch {
	case own != nil:
		own.grow(now, sourceBurst, sourceEvery)
	case len(l.mu.sources) < maxSources:
		own = &allowance{left: sourceBurst, grown: now}
		l.mu.sources[from] = own
	default:
		own = all
	}
	if own.left == 0 || all.left == 0 {
		own.suppressed++
		return 0, silent, false
	}
	own.left--
	if own != all {
		all.left--
	}
	suppressed, own.suppressed = own.suppressed, 0
	return suppressed, silent, true
}

// sweepLocked forgets once a minute the sources whose allowance is whole again, and answers how many of their lines
// nobody was told of.
func (l *limits) sweepLocked(now time.Time) (silent uint64) {
	if now.Sub(l.mu.swept) < time.Minute {
		return 0
	}
	l.mu.swept = now
	for from, a := range l.mu.sources {
		if a.grow(now, sourceBurst, sourceEvery); a.left == sourceBurst {
			silent += a.suppressed
			delete(l.mu.sources, from)
		}
	}
	return silent
}
