package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// A flood of hellos: so many streams are opened, by so many connections.
const (
	helloStreams = 100_000
	helloConns   = 10
	helloTime    = 10 * time.Second // a turn, in which all of them are sent and most are answered
)

func TestAttack_HellosOfConsumers(t *testing.T) {
	s := attackIn(t, "HellosOfConsumers", 1, helloTime)
	if n := s.Metric("columba_outputhost_streams_refused_total", `code="throttled"`); n == 0 {
		t.Error("no stream of a consumer was refused: the limit of a group is 10,000")
	}
}

func TestAttack_HellosOfPublishers(t *testing.T) { attackIn(t, "HellosOfPublishers", 1, helloTime) }

func TestAttack_HellosOfReaders(t *testing.T) {
	s := attackIn(t, "HellosOfReaders", 1, helloTime)
	if n := s.Metric("columba_storehost_streams_refused_total", `code="throttled"`); n < helloStreams/2 {
		t.Errorf("%g streams that read one extent were refused: the limit is 10,000", n)
	}
}

// hello opens one stream.
func hello(t wire.FrameType, m proto.Message) func(stream uint32) []byte {
	body, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return func(stream uint32) []byte { return wire.AppendFrame(nil, t, stream, body) }
}

func hellosOfConsumers() attack {
	return floodOf("/v1/consume", func(string, int) func(uint32) []byte {
		return hello(wire.TypeConsumeHello, &pb.ConsumeHello{Queue: "/t/prey", Group: "a", Client: "greedy"})
	})
}

func hellosOfPublishers() attack {
	return floodOf("/v1/publish", func(string, int) func(uint32) []byte {
		return hello(wire.TypePublishHello, &pb.PublishHello{Queue: "/t/prey", Client: "greedy"})
	})
}

// hellosOfReaders follow the extent that the other client publishes to.
func hellosOfReaders() attack {
	return floodOf("/v1/store", func(addr string, _ int) func(uint32) []byte {
		id, err := openExtent(addr)
		if err != nil {
			panic(err)
		}
		b := id[:]
		return hello(wire.TypeOpenRead, &pb.OpenRead{From: 1, Extent: &pb.Extent{
			Id: b, Queue: b, InputRun: b, Token: b, Kind: "log", Durability: "fsync", Input: "host-000000000000", Replicas: []string{"host-000000000000"},
		}})
	})
}

// openExtent is an extent of the other client's queue.
func openExtent(addr string) (core.ID, error) {
	res, err := http.Post("http://"+addr+"/columba.v1.AdminService/ListExtents", "application/json", strings.NewReader(`{"queue":"/t/victim"}`))
	if err != nil {
		return core.ID{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return core.ID{}, err
	}
	var list struct {
		Extents []struct{ Extent, State string }
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return core.ID{}, err
	}
	for _, e := range list.Extents {
		if e.State == "open" {
			return core.ParseID(e.Extent)
		}
	}
	return core.ID{}, fmt.Errorf("there is no open extent in %s", text)
}

// floodOf sends the hellos on connections that stay until ctx ends, and says when all of them were sent.
func floodOf(path string, of func(addr string, conn int) func(stream uint32) []byte) attack {
	return func(ctx context.Context, addr string) {
		var wg sync.WaitGroup
		var answers atomic.Int64
		var all sync.WaitGroup
		all.Add(helloConns)
		for i := range helloConns {
			next := of(addr, i)
			conn, err := ws.Dial(ctx, addr, path, ws.Options{})
			if err != nil {
				panic(err)
			}
			wg.Go(func() {
				err := conn.Run(ctx, func(m *ws.Message) error {
					for rest := m.Bytes; len(rest) > 0; {
						_, r, err := wire.NextFrame(rest)
						if err != nil {
							return err
						}
						answers.Add(1)
						rest = r
					}
					return nil
				})
				if err != nil && ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, path, err)
				}
			})
			wg.Go(func() {
				defer all.Done()
				for stream := range uint32(helloStreams / helloConns) {
					if conn.Send(ctx, next(stream+1)) != nil {
						return
					}
				}
			})
		}
		all.Wait()
		<-ctx.Done()
		fmt.Fprintln(os.Stderr, path, answers.Load(), "frames came")
		wg.Wait()
	}
}
