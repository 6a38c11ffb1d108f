package ws

import (
	"sync"
	"testing"

	"github.com/columbamq/columba/wire"
)

// BenchmarkSendOwned sends frames of a batch's size one way. The server does not mask, and does not copy.
func BenchmarkSendOwned(b *testing.B) {
	for name, connect := range transports {
		for _, sender := range []string{"client", "server"} {
			b.Run(name+"/"+sender, func(b *testing.B) {
				l := connect(b, Options{}, Options{Admission: anyone()})
				from, to := l.client, l.server
				if sender == "server" {
					from, to = to, from
				}
				var arrived sync.WaitGroup
				running(b, to, eachFrame(func(wire.Frame) error { arrived.Done(); return nil }))
				running(b, from, ignore)
				body := make([]byte, 256<<10)
				head := wire.AppendBatchesHead(nil, 1, len(body))
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					arrived.Add(1)
					if err := from.SendOwned(b.Context(), head, body, nil); err != nil {
						b.Fatal(err)
					}
				}
				arrived.Wait()
			})
		}
	}
}

// BenchmarkSend sends small frames, which are copied and coalesced.
func BenchmarkSend(b *testing.B) {
	l := tcpLink(b, Options{}, Options{Admission: anyone()})
	var arrived sync.WaitGroup
	running(b, l.server, eachFrame(func(wire.Frame) error { arrived.Done(); return nil }))
	running(b, l.client, ignore)
	small := frame(1, 64)
	b.ReportAllocs()
	for b.Loop() {
		arrived.Add(1)
		if err := l.client.Send(b.Context(), small); err != nil {
			b.Fatal(err)
		}
	}
	arrived.Wait()
}

// BenchmarkRoundTrip is one small frame there and one back.
func BenchmarkRoundTrip(b *testing.B) {
	for name, connect := range transports {
		b.Run(name, func(b *testing.B) {
			l := connect(b, Options{}, Options{Admission: anyone()})
			answered := make(chan struct{}, 1)
			running(b, l.server, func(m *Message) error { return l.server.Send(b.Context(), m.Bytes) })
			running(b, l.client, func(*Message) error { answered <- struct{}{}; return nil })
			small := frame(1, 64)
			b.ReportAllocs()
			for b.Loop() {
				if err := l.client.Send(b.Context(), small); err != nil {
					b.Fatal(err)
				}
				<-answered
			}
		})
	}
}

// anyone is an Admission as hosts have it.
func anyone() *Admission {
	return NewAdmission(Limits{Connections: 10_000, Streams: 1, PerConnection: 1}, nil)
}

// BenchmarkManyConnections sends batches on more connections than there is room for half of a message of each.
func BenchmarkManyConnections(b *testing.B) {
	admission := anyone()
	var links []link
	for range 300 {
		links = append(links, tcpLink(b, Options{}, Options{Admission: admission}))
	}
	var arrived sync.WaitGroup
	for _, l := range links {
		running(b, l.server, eachFrame(func(wire.Frame) error { arrived.Done(); return nil }))
		running(b, l.client, ignore)
	}
	body := make([]byte, 256<<10)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		arrived.Add(1)
		if err := links[i%len(links)].client.SendOwned(b.Context(), wire.AppendBatchesHead(nil, 1, len(body)), body, nil); err != nil {
			b.Fatal(err)
		}
	}
	arrived.Wait()
}
