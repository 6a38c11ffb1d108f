package intake

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/internal/serving"
)

const (
	peek = "/columba.v1.AdminService/Peek"
	pull = "/columba.v1.MessageService/Pull"
)

// readers runs an intake before a page, on a network in memory, in a synctest bubble. Each call is one of a client with
// an address, on a connection of its own.
func readers(t *testing.T, in *Intake, page http.HandlerFunc) func(address, path, kind string) (*http.Response, error) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return readersBy(t, protocols, in, page)
}

func readersBy(t *testing.T, protocols *http.Protocols, in *Intake, page http.HandlerFunc) func(address, path, kind string) (*http.Response, error) {
	t.Helper()
	l := netmem.Listen("server")
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in.Serve(w, r, r.Header.Get("From"), r.RemoteAddr+r.Header.Get("Number"), page)
	}), Protocols: protocols, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	go s.Serve(l)
	client := &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }, DisableKeepAlives: true, DisableCompression: true}
	t.Cleanup(func() { s.Close(); client.CloseIdleConnections() })
	var number atomic.Int32
	return func(address, path, kind string) (*http.Response, error) {
		req := post(t, path, kind, nil)
		req.Header.Set("From", address)
		req.Header.Set("Number", strconv.Itoa(int(number.Add(1))))
		return client.RoundTrip(req.WithContext(t.Context()))
	}
}

// page8 answers a page of messages of 8 MiB.
func page8(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write(make([]byte, largeAnswer))
}

// TestAnswers_SlowReadersHoldNoMoreThanTheBudget has readers of 32 KiB a second. Each is cut as soon as another waits
// for its room, so all calls end.
func TestAnswers_SlowReadersHoldNoMoreThanTheBudget(t *testing.T) {
	protocols := [2]http.Protocols{}
	protocols[0].SetHTTP1(true)
	protocols[1].SetUnencryptedHTTP2(true)
	for i := range protocols {
		t.Run(protocols[i].String(), func(t *testing.T) { slowReaders(t, &protocols[i]) })
	}
}

func slowReaders(t *testing.T, protocols *http.Protocols) {
	synctest.Test(t, func(t *testing.T) {
		in := newIntake()
		var under, most atomic.Int64
		call := readersBy(t, protocols, in, func(w http.ResponseWriter, r *http.Request) {
			n := under.Add(1)
			defer under.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			if held := in.answers[0].Held(); held > PublicAnswers.Large {
				t.Errorf("%d bytes are held, at most %d may be", held, PublicAnswers.Large)
			}
			page8(w, r)
		})
		began := time.Now()
		var served, refused atomic.Int32
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				res, err := call("slow", peek, "application/proto")
				if err != nil {
					return // it was cut before its header
				}
				defer res.Body.Close()
				if res.StatusCode == http.StatusTooManyRequests {
					refused.Add(1)
				} else {
					served.Add(1)
				}
				for buf := make([]byte, 32<<10); err == nil; time.Sleep(time.Second) {
					_, err = io.ReadFull(res.Body, buf)
				}
			})
		}
		wg.Wait()
		if n := most.Load(); n != 9 { // three quarters of 96 MiB
			t.Errorf("%d answers of 8 MiB for one address at a time, want 9", n)
		}
		if took := time.Since(began); took > 6*time.Minute || served.Load()+refused.Load() == 0 {
			t.Errorf("%d calls were served and %d refused within %s", served.Load(), refused.Load(), took)
		}
		if held := in.answers[0].Held(); held != 0 {
			t.Errorf("%d bytes are held after all", held)
		}
	})
}

func TestAnswers_AGoodReaderPassesSlowOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newIntake()
		call := readers(t, in, page8)
		for range 9 {
			res, err := call("one", peek, "application/proto")
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close() // and nothing is read
		}
		began := time.Now()
		res, err := call("one", peek, "application/proto")
		if status, body := answerOf(t, res, err); status != http.StatusOK || len(body) != largeAnswer || time.Since(began) > 2*time.Second {
			t.Errorf("a reader beside slow ones of its address: %d, %d bytes after %s", status, len(body), time.Since(began))
		}
	})
}

// TestAnswers_ACallWithoutRoomIsNotHandled has calls that reserve all the room and are handled for long.
func TestAnswers_ACallWithoutRoomIsNotHandled(t *testing.T) {
	for kind, want := range map[string]string{
		"application/proto": "", "application/json": `"code":"resource_exhausted"`, "application/grpc+proto": "8",
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := newIntake()
				var handled atomic.Int32
				end := make(chan struct{})
				call := readers(t, in, func(w http.ResponseWriter, r *http.Request) {
					handled.Add(1)
					<-end
					_, _ = io.WriteString(w, "done")
				})
				var wg sync.WaitGroup
				fill := func(n int, address string) {
					for range n {
						wg.Go(func() {
							res, err := call(address, peek, "application/proto")
							if status, body := answerOf(t, res, err); status != http.StatusOK || body != "done" {
								t.Errorf("a call with room: %d, %s", status, body)
							}
						})
					}
					synctest.Wait()
				}
				refused := func(what, address string) {
					t.Helper()
					began, before := time.Now(), handled.Load()
					res, err := call(address, peek, kind)
					status, text := answerOf(t, res, err)
					if took := time.Since(began); took != PublicAnswers.Wait || handled.Load() != before {
						t.Errorf("%s: refused after %s, and handled %d times", what, took, handled.Load()-before)
					}
					if kind == "application/grpc+proto" {
						if got := res.Trailer.Get("Grpc-Status") + res.Header.Get("Grpc-Status"); status != http.StatusOK || got != want {
							t.Errorf("%s: status %d, gRPC %q, want %q", what, status, got, want)
						}
						return
					}
					if status != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" || !strings.Contains(text, want) {
						t.Errorf("%s: %d, Retry-After %q, %s", what, status, res.Header.Get("Retry-After"), text)
					}
				}
				fill(9, "a")
				refused("an address beyond its share", "a")
				fill(3, "b")
				refused("no room at all", "c")
				if n := handled.Load(); n != 12 {
					t.Errorf("%d calls were handled, want 12", n)
				}
				close(end)
				wg.Wait()
				if held := in.answers[0].Held(); held != 0 {
					t.Errorf("%d bytes are held after all", held)
				}
			})
		})
	}
}

// TestAnswers_APullTakesNothingWithoutRoom has a pull that waited find something to answer.
func TestAnswers_APullTakesNothingWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newIntake()
		end := make(chan struct{})
		results := make(chan error, 1)
		call := readers(t, in, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == peek {
				<-end
				return
			}
			err := serving.AwaitAnswerRoom(r.Context())
			if err == nil {
				page8(w, r)
			}
			results <- err
		})
		whole := func(address, path string) {
			res, err := call(address, path, "application/proto")
			answerOf(t, res, err)
		}
		for range 9 {
			go func() { whole("a", peek) }()
		}
		synctest.Wait()
		began := time.Now()
		whole("a", pull)
		if err := <-results; core.CodeOf(err) != core.CodeThrottled || time.Since(began) != PublicAnswers.Wait {
			t.Errorf("a pull without room: %v after %s, want throttled after %s", err, time.Since(began), PublicAnswers.Wait)
		}
		close(end)
		synctest.Wait()
		res, err := call("a", pull, "application/proto")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if held := in.answers[0].Held(); held != largeAnswer {
			t.Errorf("a pull that is being answered holds %d bytes, want %d", held, largeAnswer)
		}
		res.Body.Close()
		<-results
		synctest.Wait()
		if held := in.answers[0].Held(); held != 0 {
			t.Errorf("%d bytes are held after all", held)
		}
	})
}

// TestAnswers_AStreamHoldsWhatItWrites has a stream send messages with pauses. Its pauses are no slowness, while others
// wait; that its client does not read is.
func TestAnswers_AStreamHoldsWhatItWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newIntake()
		const stream = "/columba.v1.MetadataService/WatchPartition"
		ended := make(chan error, 1)
		call := readers(t, in, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != stream {
				page8(w, r)
				return
			}
			var err error
			for range 3 {
				time.Sleep(10 * time.Second)
				if held := in.answers[1].Held(); held != 0 {
					t.Errorf("a stream holds %d bytes in a pause", held)
				}
				if _, err = w.Write(make([]byte, 1<<20)); err != nil {
					break
				}
				_ = http.NewResponseController(w).Flush()
			}
			ended <- err
		})
		res, err := call("a", stream, "application/connect+proto")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, res.Body); n != 3<<20 || err != nil {
			t.Errorf("read %d bytes, %v", n, err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if res, err = call("a", stream, "application/connect+proto"); err != nil { // and nothing is read
			t.Fatal(err)
		}
		defer res.Body.Close()
		synctest.Wait()
		if held := in.answers[1].Held(); held != 1<<20 {
			t.Errorf("a stream that nobody reads holds %d bytes, want %d", held, 1<<20)
		}
		began := time.Now()
		d := in.answers[1].Body("b", "b", func() {})
		defer d.Release()
		if err := d.grow(t.Context(), large, 48<<20); err != nil {
			t.Fatal(err)
		}
		other := in.answers[1].Body("c", "c", func() {})
		defer other.Release()
		if err := other.grow(t.Context(), large, 48<<20); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil || time.Since(began) > 2*time.Second {
			t.Errorf("the stream ended with %v after %s, want it cut", err, time.Since(began))
		}
	})
}

// TestAnswers_APackedEnvelopeHoldsItsRoom: an answer of gRPC is written in two parts, its prefix and its message. While
// a compressed message is being sent, the process holds what it was made of.
func TestAnswers_APackedEnvelopeHoldsItsRoom(t *testing.T) {
	in := newIntake()
	w := &holdings{ResponseRecorder: httptest.NewRecorder(), of: in.answers[0]}
	in.Serve(w, post(t, peek, "application/grpc+proto", nil), "a", "a", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Grpc-Encoding", "gzip")
		_, _ = w.Write(make([]byte, envelopePrefix))
		_, _ = w.Write(make([]byte, 32<<10))
	}))
	if want := []int64{largeAnswer, largeAnswer}; !slices.Equal(w.held, want) {
		t.Errorf("while a packed answer is sent it holds %d bytes, want %d", w.held, want)
	}
	if held := in.answers[0].Held(); held != 0 {
		t.Errorf("%d bytes are held after all", held)
	}
}

// TestAnswers_APackedPullHoldsWhatItWasMadeOf: a pull reserves nothing, and says how large its answer is.
func TestAnswers_APackedPullHoldsWhatItWasMadeOf(t *testing.T) {
	in := newIntake()
	w := &holdings{ResponseRecorder: httptest.NewRecorder(), of: in.answers[0]}
	in.Serve(w, post(t, pull, "application/proto", nil), "a", "a", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.HoldAnswer(r.Context(), 8<<20)
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(make([]byte, 8<<10))
	}))
	if !slices.Equal(w.held, []int64{8 << 20}) || in.answers[0].Held() != 0 {
		t.Errorf("while a packed pull of 8 MiB is sent it holds %d bytes, and %d after", w.held, in.answers[0].Held())
	}
}

// holdings notes what is held of a budget at each write.
type holdings struct {
	*httptest.ResponseRecorder
	of   *Budget
	held []int64
}

func (h *holdings) Write(p []byte) (int, error) {
	h.held = append(h.held, h.of.Held())
	return h.ResponseRecorder.Write(p)
}

func TestAnswers_AnEndedAnswerIsNotCut(t *testing.T) {
	var w deadlines
	a := &Answer{ResponseWriter: &w, control: http.NewResponseController(&w)}
	a.cut()
	a.end()
	a.cut()
	if w.set != 1 {
		t.Errorf("the writer was cut %d times, want once: it is another answer's after its end", w.set)
	}
}

// deadlines counts the write deadlines that are set.
type deadlines struct {
	http.ResponseWriter
	set int
}

func (d *deadlines) SetWriteDeadline(time.Time) error { d.set++; return nil }
