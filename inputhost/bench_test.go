package inputhost

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/wire"
)

// overTCP is a harness with real sockets and three stores that commit in groups.
func overTCP(b *testing.B) *harness {
	b.Helper()
	r := &harness{t: b, listen: func(string) net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		return l
	}}
	r.start(3, nil)
	for _, s := range r.stores {
		s.set(func() { s.group = 500 * time.Microsecond })
	}
	b.Cleanup(r.stop)
	return r
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// latency is of one message.
type latency struct {
	sent time.Time
	took *atomic.Int64
	left *atomic.Int64
}

func (l latency) Settled(_ core.MessageID, _ core.Receipt, err error) {
	if err != nil {
		panic(err)
	}
	l.took.Store(int64(time.Since(l.sent)))
	l.left.Add(-1)
}

// BenchmarkHost_ActiveQueues is what 10,000 messages a second cost, publishers and fakes of stores included, in one
// queue and spread over a thousand.
func BenchmarkHost_ActiveQueues(b *testing.B) {
	const perSecond = 10_000
	for _, queues := range []int{1, 1000} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			r := overTCP(b)
			var all []*publish.Publisher
			for i := range queues {
				q := path
				if queues > 1 {
					q = fmt.Sprintf("%s%04d", path, i)
					r.queue(q)
				}
				all = append(all, r.publisher(q, q).pub)
			}
			record := make([]byte, 1024)
			var left atomic.Int64
			run := func(messages int) []atomic.Int64 {
				took := make([]atomic.Int64, messages)
				left.Store(int64(messages))
				tick := time.NewTicker(time.Millisecond)
				defer tick.Stop()
				for sent, began := 0, time.Now(); sent < messages; {
					<-tick.C
					due := min(messages, int(time.Since(began).Seconds()*perSecond))
					for ; sent < due; sent++ {
						v := wire.Record{Payload: record}
						l := latency{time.Now(), &took[sent], &left}
						if err := all[sent%queues].Append(b.Context(), &v, 0, l); err != nil {
							b.Fatal(err)
						}
					}
				}
				for left.Load() > 0 {
					<-tick.C
				}
				return took
			}
			run(3 * perSecond) // until all have their extents
			b.ResetTimer()
			b.ReportAllocs()
			began := cpu()
			took := run(b.N)
			b.ReportMetric(float64(cpu()-began)/float64(b.N), "cpu-ns/op")
			sorted := make([]int64, len(took))
			for i := range took {
				sorted[i] = took[i].Load()
			}
			slices.Sort(sorted)
			b.ReportMetric(float64(sorted[len(sorted)/2])/1e6, "p50-ms")
			b.ReportMetric(float64(sorted[len(sorted)*99/100])/1e6, "p99-ms")
		})
	}
}

// BenchmarkHost_Publish is the rate of 4 producers with 1,000 messages of 1 KiB in flight each, on three replicas.
func BenchmarkHost_Publish(b *testing.B) {
	r := overTCP(b)
	const producers, inFlight = 4, 1000
	record := make([]byte, 1024)
	b.SetBytes(int64(len(record)))
	b.ReportAllocs()
	var all []*publish.Publisher
	for i := range producers {
		all = append(all, r.publisher(fmt.Sprint(i), path).pub)
	}
	var producing sync.WaitGroup
	began := cpu()
	b.ResetTimer()
	for i, p := range all {
		producing.Go(func() {
			room := make(chan struct{}, inFlight)
			for range b.N/producers + min(1, max(0, b.N%producers-i)) {
				room <- struct{}{}
				v := wire.Record{Payload: record}
				if err := p.Append(b.Context(), &v, 0, publish.DoneFunc(func(_ core.MessageID, _ core.Receipt, err error) {
					if err != nil {
						b.Error(err)
					}
					<-room
				})); err != nil {
					b.Error(err)
					return
				}
			}
			if err := p.Flush(b.Context()); err != nil {
				b.Error(err)
			}
		})
	}
	producing.Wait()
	b.ReportMetric(float64(cpu()-began)/float64(b.N), "cpu-ns/op")
}
