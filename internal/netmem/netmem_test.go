package netmem

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestPipe_CarriesBytesInOrder(t *testing.T) {
	a, b := Pipe("test")
	random := rand.New(rand.NewPCG(1, 2))
	sent, got := sha256.New(), sha256.New()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer a.Close()
		for range 200 {
			p := make([]byte, random.IntN(2*BufferSize/10))
			for i := range p {
				p[i] = byte(random.Uint32())
			}
			sent.Write(p)
			if n, err := a.Write(p); n != len(p) || err != nil {
				t.Errorf("Write = %d, %v", n, err)
			}
		}
	})
	if _, err := io.CopyBuffer(got, struct{ io.Reader }{b}, make([]byte, 7777)); err != nil {
		t.Errorf("read: %v", err)
	}
	wg.Wait()
	if !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Error("what was read differs from what was written")
	}
}

func TestPipe_Close(t *testing.T) {
	a, b := Pipe("test")
	if _, err := a.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("first Close = %v", err)
	}
	if err := a.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second Close = %v, want net.ErrClosed", err)
	}
	if got, err := io.ReadAll(b); err != nil || string(got) != "last words" {
		t.Errorf("peer read %q, %v", got, err)
	}
	if _, err := b.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("peer's Write = %v, want io.ErrClosedPipe", err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("own Read = %v, want net.ErrClosed", err)
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("own Write = %v, want net.ErrClosed", err)
	}
	if err := a.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("SetDeadline = %v, want net.ErrClosed", err)
	}
}

func TestPipe_CloseWakesBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle, _ := Pipe("test")
		a, b := Pipe("test")
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Read of the closed side = %v, want net.ErrClosed", err)
			}
		})
		wg.Go(func() {
			if _, err := b.Write(make([]byte, 2*BufferSize)); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("Write of the other side = %v, want io.ErrClosedPipe", err)
			}
		})
		synctest.Wait()
		idle.Close()
		a.Close()
		wg.Wait()
	})
}

func TestPipe_Deadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe("test")
		begin := time.Now()
		a.SetReadDeadline(begin.Add(time.Minute))
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read = %v, want os.ErrDeadlineExceeded", err)
		}
		var timeout net.Error
		if _, err := a.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("Read = %v, want a net.Error that is a timeout", err)
		}
		if d := time.Since(begin); d != time.Minute {
			t.Errorf("Read ended after %s, want 1m", d)
		}
		a.SetReadDeadline(time.Time{})
		b.Write([]byte("x"))
		if n, err := a.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("Read without a deadline = %d, %v", n, err)
		}
		a.SetWriteDeadline(time.Now().Add(time.Hour))
		a.SetWriteDeadline(time.Now().Add(time.Second))
		begin = time.Now()
		n, err := a.Write(make([]byte, 2*BufferSize))
		if n != BufferSize || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write = %d, %v; want %d, os.ErrDeadlineExceeded", n, err, BufferSize)
		}
		if d := time.Since(begin); d != time.Second {
			t.Errorf("Write ended after %s, want 1s", d)
		}
	})
}

func TestPipe_PastDeadlineEndsAWaitingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := Pipe("test")
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Read = %v, want os.ErrDeadlineExceeded", err)
			}
		})
		synctest.Wait()
		a.SetReadDeadline(time.Unix(1, 0))
		wg.Wait()
	})
}

// Many connections at once end reads with a past deadline, as net/http does after each request: with timers in the past
// this ended the process inside the race detector.
func TestPipe_PastDeadlinesOnManyConnections(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					a, _ := Pipe("test")
					for range 1000 {
						a.SetReadDeadline(time.Unix(1, 0))
					}
					if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("Read = %v, want os.ErrDeadlineExceeded", err)
					}
				})
			}
			wg.Wait()
		})
	}
}

func TestListener_DialAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Listen("store")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Dial(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial without Accept = %v, want context.DeadlineExceeded", err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept = %v, want net.ErrClosed", err)
			}
		})
		synctest.Wait()
		l.Close()
		wg.Wait()
		if _, err := l.Dial(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Dial after Close = %v, want net.ErrClosed", err)
		}
	})
}

func TestListener_ServesHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Listen("api")
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(w, r.Body)
		})}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("Serve = %v", err)
			}
		})
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }}
		client := &http.Client{Transport: transport}
		want := bytes.Repeat([]byte("echo "), 100_000)
		response, err := client.Post("http://api/", "text/plain", bytes.NewReader(want))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("read %d bytes, %v; want the %d sent", len(got), err, len(want))
		}
		response.Body.Close()
		transport.CloseIdleConnections()
		if err := server.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		wg.Wait()
	})
}

func BenchmarkPipe(b *testing.B) {
	for _, size := range []struct {
		name string
		n    int
	}{{"4KiB", 4 << 10}, {"256KiB", 256 << 10}} {
		b.Run(size.name, func(b *testing.B) {
			near, far := Pipe("bench")
			var wg sync.WaitGroup
			wg.Go(func() {
				p := make([]byte, 256<<10)
				for {
					if _, err := far.Read(p); err != nil {
						return
					}
				}
			})
			p := make([]byte, size.n)
			b.SetBytes(int64(size.n))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := near.Write(p); err != nil {
					b.Fatal(err)
				}
			}
			near.Close()
			wg.Wait()
		})
	}
}

func TestPipe_HoldKeepsBytesAndTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe("test")
		far.(*Conn).Hold(true)
		if _, err := near.Write([]byte("late")); err != nil {
			t.Fatal(err)
		}
		near.Close()
		far.SetReadDeadline(time.Now().Add(time.Second))
		if n, err := far.Read(make([]byte, 10)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read while held = %d, %v, want its deadline", n, err)
		}
		far.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Minute, func() { far.(*Conn).Hold(false) })
		began := time.Now()
		if got, err := io.ReadAll(far); string(got) != "late" || err != nil || time.Since(began) != time.Minute {
			t.Errorf("read %q, %v after %s, want what was written, after a minute", got, err, time.Since(began))
		}
	})
}

func TestPipe_Reset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe("test")
		if _, err := near.Write([]byte("lost")); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, near.(*Conn).Reset)
		if _, err := near.Read(make([]byte, 10)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the waiting end got %v", err)
		}
		if n, err := far.Read(make([]byte, 10)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the other end read %d bytes, %v", n, err)
		}
		if _, err := far.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the other end wrote, %v", err)
		}
		if err := near.Close(); err != nil {
			t.Errorf("Close after Reset = %v", err)
		}
	})
}
