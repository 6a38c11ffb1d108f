package attack

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/test/process"
)

func TestAttack_GzipBombs(t *testing.T) { withstand(t, "GzipBombs") }

func TestAttack_ElementBombs(t *testing.T) { withstand(t, "ElementBombs") }

func TestAttack_ElementBombsOfOtherCase(t *testing.T) { withstand(t, "ElementBombsOfOtherCase") }

func TestAttack_StalledBodies(t *testing.T) { withstand(t, "StalledBodies") }

func TestAttack_SmallStalledBodies(t *testing.T) { withstand(t, "SmallStalledBodies") }

func TestAttack_StalledCalls(t *testing.T) { withstand(t, "StalledCalls") }

func TestAttack_ManyPulls(t *testing.T) { withstand(t, "ManyPulls") }

func TestAttack_SlowReaders(t *testing.T) { withstand(t, "SlowReaders") }

// calls of each service, one of which takes much.
var calls = []string{
	"MessageService/Publish", "AdminService/CreateQueues", "ControllerService/EnsureExtent", "OutputService/Assign", "StoreService/Copy", "MetadataService/PutRows",
}

// zip is n bytes of a pattern, by gzip.
func zip(pattern []byte, n int) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		panic(err)
	}
	block := bytes.Repeat(pattern, 64<<10/len(pattern))
	for ; n > 0; n -= len(block) {
		if _, err := w.Write(block); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// post sends a body to a call, and reads the answer. The server may answer anything.
func post(ctx context.Context, client *http.Client, addr, call, kind, packing string, body io.Reader) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/columba.v1."+call, body)
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", kind)
	if packing != "" {
		req.Header.Set("Content-Encoding", packing)
		req.Header.Set("Grpc-Encoding", packing)
	}
	if res, err := client.Do(req); err == nil {
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}

// each does something again and again, by so many goroutines, until ctx ends.
func each(ctx context.Context, workers int, do func(worker, i int)) {
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil && i < 1000; i++ {
				do(w, i)
			}
		})
	}
	wg.Wait()
}

// once does something by so many goroutines, once each, and waits for ctx.
func once(ctx context.Context, workers int, do func()) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(do)
	}
	wg.Wait()
	<-ctx.Done()
}

func gzipBombs() attack {
	bomb := zip([]byte{0}, 256<<20)
	return func(ctx context.Context, addr string) {
		client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
		defer client.CloseIdleConnections()
		each(ctx, 8, func(w, i int) {
			post(ctx, client, addr, calls[(w+i)%len(calls)], "application/proto", "gzip", bytes.NewReader(bomb))
		})
	}
}

// elementBombs sends messages of two bytes, each of which takes a hundred times as many when it is decoded.
func elementBombs() attack {
	small, plain := zip([]byte{0x12, 0, 0x1a, 0}, 24<<20), bytes.Repeat([]byte{0x12, 0, 0x1a, 0}, 1<<20)
	objects := []byte(`{"messages":[` + strings.Repeat("{},", 1<<20) + `{}]}`)
	return func(ctx context.Context, addr string) {
		client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
		defer client.CloseIdleConnections()
		each(ctx, 4, func(w, i int) {
			post(ctx, client, addr, calls[(w+i)%len(calls)], "application/proto", "gzip", bytes.NewReader(small))
			post(ctx, client, addr, calls[(w+i)%len(calls)], "application/proto", "", bytes.NewReader(plain))
			post(ctx, client, addr, "MessageService/Publish", "application/json", "", bytes.NewReader(objects))
		})
	}
}

// elementBombsOfOtherCase are the same under content types in another case, in an envelope and as JSON.
func elementBombsOfOtherCase() attack {
	packed := zip([]byte{0x12, 0, 0x1a, 0}, 32<<20)
	enveloped := append(binary.BigEndian.AppendUint32([]byte{1}, uint32(len(packed))), packed...)
	objects := []byte(`{"messages":[` + strings.Repeat("{},", 10<<20) + `{}]}`)
	return func(ctx context.Context, addr string) {
		client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
		defer client.CloseIdleConnections()
		each(ctx, 4, func(w, i int) {
			post(ctx, client, addr, calls[(w+i)%len(calls)], "Application/grpc+proto", "gzip", bytes.NewReader(enveloped))
			post(ctx, client, addr, "MessageService/Publish", "Application/JSON", "", bytes.NewReader(objects))
		})
	}
}

// stalledBodies has 200 connections send most of a large publish, and then nothing.
func stalledBodies() attack {
	part := make([]byte, 256<<10)
	return func(ctx context.Context, addr string) {
		once(ctx, 200, func() {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				return
			}
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			c.(*net.TCPConn).SetWriteBuffer(64 << 10) // of the machine's memory, not of the server's
			fmt.Fprintf(c, "POST /columba.v1.MessageService/Publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 33554000\r\n\r\n")
			for range 124 {
				if _, err := c.Write(part); err != nil {
					return
				}
			}
			io.Copy(io.Discard, c) // until the server has had enough
		})
	}
}

// smallStalledBodies is the same with bodies that count as small.
func smallStalledBodies() attack {
	return func(ctx context.Context, addr string) {
		once(ctx, 400, func() {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				return
			}
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			fmt.Fprintf(c, "POST /columba.v1.MessageService/Publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 65000\r\n\r\n%64000s", "")
			io.Copy(io.Discard, c)
		})
	}
}

// stalledCalls has as many calls as one address may have, by few connections, wait for bodies that never come.
func stalledCalls() attack {
	return func(ctx context.Context, addr string) {
		var wg sync.WaitGroup
		for range 12 {
			transport := &http.Transport{Protocols: new(http.Protocols)}
			transport.Protocols.SetUnencryptedHTTP2(true)
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			for range 250 {
				wg.Go(func() {
					for ctx.Err() == nil {
						never, w := io.Pipe()
						end := context.AfterFunc(ctx, func() { w.Close() })
						post(ctx, client, addr, "MessageService/Publish", "application/json", "", never)
						end()
						w.Close()
					}
				})
			}
		}
		wg.Wait()
	}
}

// manyPulls has 10,000 pulls wait, of four groups, on 40 connections of HTTP/2, which are open before.
func manyPulls() attack {
	return func(ctx context.Context, addr string) {
		var pulls sync.WaitGroup
		for range 40 {
			transport := &http.Transport{Protocols: new(http.Protocols)}
			transport.Protocols.SetUnencryptedHTTP2(true)
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			post(ctx, client, addr, "AdminService/ListQueues", "application/json", "", strings.NewReader("{}"))
			for i := range 250 {
				pulls.Go(func() {
					post(ctx, client, addr, "MessageService/Pull", "application/json", "", strings.NewReader(fmt.Sprintf(`{"queue":"/t/prey","group":"%c","wait":"50s"}`, 'a'+i%4)))
				})
			}
		}
		pulls.Wait()
	}
}

// slowReaders ask for large pages and read none of them.
func slowReaders() attack {
	return func(ctx context.Context, addr string) {
		once(ctx, 100, func() {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				return
			}
			defer c.Close()
			c.(*net.TCPConn).SetReadBuffer(4 << 10)
			for range 20 {
				fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
			}
			select {
			case <-ctx.Done():
			case <-time.After(turnTime):
			}
		})
	}
}

// TestAttack_ForeignPages are requests that only a browser sends, for pages of others.
func TestAttack_ForeignPages(t *testing.T) {
	s := process.StartServer(t)
	for _, page := range []string{"/healthz", "/metrics", "/debug/pprof/heap", "/v1/consume", "/v1/publish", "/v1/store", "/columba.v1.AdminService/ListQueues"} {
		for name, c := range map[string]struct {
			host, header, value string
			want                int
		}{
			"a name that was made to point here": {"evil.example.org", "", "", http.StatusMisdirectedRequest},
			"another origin":                     {"", "Origin", "https://evil.example.org", http.StatusForbidden},
			"another site":                       {"", "Sec-Fetch-Site", "cross-site", http.StatusForbidden},
		} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr+page, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Host = c.host
				if c.header != "" {
					req.Header.Set(c.header, c.value)
				}
				req.Header.Set("Content-Type", "application/json")
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				if res.StatusCode != c.want {
					t.Errorf("%s %s for %s: %s, want %d", method, page, name, res.Status, c.want)
				}
			}
		}
	}
}
