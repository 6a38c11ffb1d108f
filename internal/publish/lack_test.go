package publish

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/internal/publish/publishtest"
	"github.com/columbamq/columba/wire"
)

// lacking is an input host that refuses for so long, as a whole or each record.
type lacking struct {
	publishtest.Host
	code  core.Code
	until time.Time
}

func (l *lacking) why() error {
	if time.Now().Before(l.until) {
		return core.Errorf(l.code, "the metadata have no majority here")
	}
	return nil
}

// lackingFor runs f with a publisher whose only host refuses for so long.
func lackingFor(t *testing.T, code core.Code, hello bool, lasting time.Duration, f func(*testing.T, *Publisher, *lacking)) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		l := &lacking{code: code, until: time.Now().Add(lasting)}
		if hello {
			l.OnHello = func(*pb.PublishHello) error { return l.why() }
		}
		l.OnBatch = func(b *publishtest.Batch) {
			if why := l.why(); why != nil {
				b.Explain(why)
				b.Refuse(core.CodeOf(why))
				return
			}
			b.Ack()
		}
		m.serve("h", &l.Host)
		defer m.stop()
		f(t, m.publisher(func() []Host { return hostsOf("h") }), l)
	})
}

// TestLack: a record fails when hosts have refused it for two seconds because no majority of the metadata answers, or
// the disks are full. A shorter lack fails nothing, and other reasons are waited for as long as the record has time.
func TestLack(t *testing.T) {
	type lack struct {
		code  core.Code
		hello bool
	}
	for _, lack := range []lack{{core.CodeNoMajority, true}, {core.CodeNoMajority, false}, {core.CodeNoSpace, false}} {
		hello := lack.hello
		for lasting, fails := range map[time.Duration]bool{1500 * time.Millisecond: false, time.Hour: true} {
			lackingFor(t, lack.code, hello, lasting, func(t *testing.T, p *Publisher, l *lacking) {
				got := publishOne(t, p)
				if !fails {
					if got.err != nil || got.in > lasting+lackFor {
						t.Errorf("at the hello %t: %+v after a loss of %s", hello, got, lasting)
					}
					return
				}
				if core.CodeOf(got.err) != lack.code || !strings.Contains(got.err.Error(), "no majority here") || !errors.Is(got.err, core.ErrUnavailable) {
					t.Errorf("at the hello %t: %v", hello, got.err)
				}
				if got.in < lackFor || got.in > lackFor+100*time.Millisecond {
					t.Errorf("at the hello %t: refused after %s, want %s", hello, got.in, lackFor)
				}
			})
		}
		lackingFor(t, core.CodeUnavailable, hello, 10*time.Second, func(t *testing.T, p *Publisher, _ *lacking) {
			if got := publishOne(t, p); got.err != nil || got.in < 10*time.Second {
				t.Errorf("at the hello %t: unavailable for ten seconds: %+v", hello, got)
			}
		})
	}
}

// TestLack_GoesOn: a publisher that was refused publishes again when a majority is back, and a later loss has its two
// seconds, too.
func TestLack_GoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		l := &lacking{code: core.CodeNoMajority, until: time.Now().Add(8 * time.Second)}
		l.OnHello = func(*pb.PublishHello) error { return l.why() }
		m.serve("h", &l.Host)
		defer m.stop()
		p := m.publisher(func() []Host { return hostsOf("h") })
		ctx := t.Context()
		try := func() error {
			out := make(chan error, 1)
			if err := p.Append(ctx, &wire.Record{Payload: []byte("x")}, 0, DoneFunc(func(_ core.MessageID, _ core.Receipt, err error) { out <- err })); err != nil {
				t.Fatal(err)
			}
			return <-out
		}
		if err := p.Connect(ctx); core.CodeOf(err) != core.CodeNoMajority {
			t.Errorf("connect: %v", err)
		}
		began := time.Now()
		if err := try(); core.CodeOf(err) != core.CodeNoMajority || time.Since(began) > lackFor {
			t.Errorf("while the loss lasts: %v after %s", err, time.Since(began))
		}
		time.Sleep(time.Until(l.until))
		if err := try(); err != nil {
			t.Errorf("after the loss: %v", err)
		}
		time.Sleep(time.Second)
		l.Cut()
		for range 2 { // short losses, and nothing is stored between them
			l.until = time.Now().Add(1500 * time.Millisecond)
			_ = p.Connect(ctx)
			time.Sleep(time.Until(l.until) + lackGap)
			l.Cut()
		}
		l.until = time.Now().Add(1500 * time.Millisecond)
		if err := try(); err != nil {
			t.Errorf("another loss: %v", err)
		}
	})
}

// TestLack_AnotherHostMayTakeIt: one host lacks a majority, and another one that answers may be about to take the
// queue. The message waits for that.
func TestLack_AnotherHostMayTakeIt(t *testing.T) {
	for name, answers := range map[string]bool{"it answers": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var m memory
				lacks := &lacking{code: core.CodeNoMajority, until: time.Now().Add(time.Hour)}
				lacks.OnHello = func(*pb.PublishHello) error { return lacks.why() }
				m.serve("lacks", &lacks.Host)
				other := &lacking{code: core.CodeUnavailable, until: time.Now().Add(8 * time.Second)}
				other.OnHello = func(*pb.PublishHello) error { return other.why() }
				defer m.stop()
				if answers {
					m.serve("other", &other.Host)
				} else {
					m.listeners["other"] = netmem.Listen("other") // where nobody accepts
					defer m.listeners["other"].Close()
				}
				got := publishOne(t, m.publisher(func() []Host { return hostsOf("lacks", "other") }))
				if answers && got.err != nil || !answers && core.CodeOf(got.err) != core.CodeNoMajority {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// TestLack_MaybeStoredIsUnknown: a record that an earlier try may have stored is not refused. It ends as unknown with
// its time.
func TestLack_MaybeStoredIsUnknown(t *testing.T) {
	lackingFor(t, core.CodeNoMajority, true, 0, func(t *testing.T, p *Publisher, l *lacking) {
		l.OnBatch = func(b *publishtest.Batch) {
			l.until = time.Now().Add(time.Hour)
			b.Cut()
		}
		if got := publishOne(t, p); core.CodeOf(got.err) != core.CodeUnknown || got.in < defaultTimeout {
			t.Errorf("%+v", got)
		}
	})
}
