package integration

import (
	"bytes"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

// TestSizesOfPayloads publishes nothing, everything up to the limit, and one byte more.
func TestSizesOfPayloads(t *testing.T) {
	w := newWorld(t)
	w.group("g", nil)
	p, err := w.client.Publisher(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	bodies := [][]byte{{}, binary, bytes.Repeat([]byte{0}, core.DefaultMaxMessage)}
	for _, body := range bodies {
		if _, err := p.Publish(t.Context(), client.Message{Body: body}); err != nil {
			t.Errorf("%d bytes: %v", len(body), err)
		}
	}
	for _, n := range []int{core.DefaultMaxMessage + 1, core.MaxMaxMessage + 1, 40 << 20} {
		if _, err := p.Publish(t.Context(), client.Message{Body: make([]byte, n)}); !errors.Is(err, client.ErrTooLarge) {
			t.Errorf("%d bytes: %v, want too large", n, err)
		}
	}
	_, err = p.Publish(t.Context(), client.Message{Headers: map[string]string{"long": strings.Repeat("h", 70_000)}})
	if !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("70 kB of headers: %v, want too large", err)
	}
	con := w.consumer("g")
	for _, body := range bodies {
		d := w.take(con, process.Patience)
		if d == nil || !bytes.Equal(d.Body, body) {
			t.Fatalf("got %+v, want %d bytes", d, len(body))
		}
		w.settle(d.Ack())
	}
	w.none(con, 300_000_000)
	r := w.server.Run(strings.Repeat("x", core.DefaultMaxMessage+1)+"\nsmall\n", "publish", queue)
	if r.Code != core.ExitFailed || !strings.Contains(r.Stderr, "(too_large)") {
		t.Errorf("a line too long: exit code %d, %s", r.Code, r.Stderr)
	}
	w.settle(w.next(con, "small", 1).Ack())
}

// TestForgedTokens changes every kind of byte of a real token, and uses one of another server.
func TestForgedTokens(t *testing.T) {
	w := newWorld(t)
	w.group("g", nil)
	w.publish("a")
	token := w.token(queue)
	other := process.StartServer(t)
	other.Must("", "create", "queue", queue)
	other.Must("", "create", "group", queue, "g", "--start", "earliest")
	other.Must("a", "publish", queue)
	foreign := process.Decode[struct{ Token string }](t, other.Must("", "consume", queue, "g", "--count", "1", "--ack", "tokens", "-o", "json"))[0].Token

	forged := []string{"", "x", foreign, token + token, token[:len(token)-1], strings.Repeat("A", 100_000), "\x00"}
	r := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		b := []byte(token)
		i := r.IntN(len(b) - 1) // the last character may have bits that say nothing
		for b[i] == token[i] {
			b[i] = base64.RawURLEncoding.EncodeToString([]byte{byte(r.Uint32())})[0]
		}
		forged = append(forged, string(b))
	}
	for _, f := range forged {
		for what, settle := range map[string]func() ([]client.TokenError, error){
			"ack":    func() ([]client.TokenError, error) { return w.client.Ack(t.Context(), f) },
			"reject": func() ([]client.TokenError, error) { return w.client.Reject(t.Context(), []string{f}, "forged") },
		} {
			bad, err := settle()
			if err == nil && len(bad) == 1 {
				err = bad[0].Err
			}
			if !errors.Is(err, client.ErrBadToken) && !errors.Is(err, client.ErrBadArgument) && !errors.Is(err, client.ErrTooLarge) {
				t.Errorf("%s of %.80q: %v, want bad token", what, f, err)
			}
		}
	}
	bad, err := w.client.Ack(t.Context(), foreign, token, "x")
	if err != nil || len(bad) != 2 {
		t.Errorf("two bad tokens and a good one: %v %v, want the bad ones refused", bad, err)
	}
	process.Eventually(t, "the good token was taken", func() bool {
		d, err := w.client.Admin().Depth(t.Context(), queue, "g")
		return err == nil && d[0].InFlight+d[0].Ready == 0 && d[0].UnknownExtents == 0
	})
	w.letters("g", 0)
}

func (w *world) token(path string) string {
	w.t.Helper()
	out := w.server.Must("", "consume", path, "g", "--count", "1", "--ack", "tokens", "-o", "json")
	return process.Decode[struct{ Token string }](w.t, out)[0].Token
}

// TestGarbageCalls sends garbage to the calls.
func TestGarbageCalls(t *testing.T) {
	w := newWorld(t)
	base := "http://" + w.server.Addr + "/columba.v1."
	for _, path := range []string{
		"AdminService/CreateQueue", "AdminService/CreateGroup", "AdminService/ListQueues", "MessageService/Publish", "MessageService/Pull",
		"MessageService/Ack", "MessageService/Nothing", "StoreService/Fence", "ControllerService/StartGroup", "OutputService/Pull", "X/Y",
	} {
		for _, kind := range []string{"application/json", "application/proto", "text/plain", "application/grpc"} {
			for _, body := range []string{"", "{", "\x00\xff\xfe", `{"queue":1}`, `{"spec":{"path":"/x"}}`, strings.Repeat("[", 100_000)} {
				res, err := http.Post(base+path, kind, strings.NewReader(body))
				if err != nil {
					t.Errorf("%s %s %.20q: %v", path, kind, body, err)
					continue
				}
				res.Body.Close()
				if res.StatusCode >= 500 && res.StatusCode != http.StatusNotImplemented {
					t.Errorf("%s %s %.20q: %s, the fault is the caller's", path, kind, body, res.Status)
				}
			}
		}
	}
	w.works()
}

// TestDirectoriesAreRefused starts servers on directories that they must not use; none changes what is there.
func TestDirectoriesAreRefused(t *testing.T) {
	w := newWorld(t)
	w.group("g", nil)
	w.publish("kept")
	serve := func(what, dir string, code int, says core.Code) {
		t.Helper()
		r := w.server.Run("", "serve", "--data", dir, "--listen", "127.0.0.1:0")
		if r.Code != code || !strings.Contains(r.Stderr, "("+string(says)+")") || r.Stdout != "" {
			t.Errorf("%s: exit code %d, want %d (%s); stdout %q, stderr %s", what, r.Code, code, says, r.Stdout, r.Stderr)
		}
	}
	serve("in use", w.server.Data, core.ExitConflict, core.CodeLocked)
	w.works()
	serve("no parent", filepath.Join(t.TempDir(), "no", "such"), core.ExitNotFound, core.CodeNotFound)

	if w.server.Stop() != 0 {
		t.Error("the server did not stop well")
	}
	host := filepath.Join(w.server.Data, "host.json")
	good := read(t, host)
	write(t, host, strings.Replace(string(good), `"format": 1`, `"format": 99`, 1), `99`)
	serve("newer host", w.server.Data, core.ExitFailed, core.CodeNewerFormat)
	write(t, host, `{"format":`, `format`)
	serve("damaged host", w.server.Data, core.ExitFailed, core.CodeCorrupt)
	write(t, host, string(good), `1`)

	if os.Geteuid() != 0 { // root writes everywhere
		readOnly := filepath.Join(t.TempDir(), "ro")
		if err := os.Mkdir(readOnly, 0o500); err != nil {
			t.Fatal(err)
		}
		serve("read-only", readOnly, core.ExitUnavailable, core.CodeReadOnly)
	}

	metadata := filepath.Join(w.server.Data, "metadata")
	if err := os.Rename(metadata, metadata+".away"); err != nil {
		t.Fatal(err)
	}
	serve("metadata gone", w.server.Data, core.ExitFailed, core.CodeCorrupt)
	if err := os.RemoveAll(metadata); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(metadata+".away", metadata); err != nil {
		t.Fatal(err)
	}
	w.server.Start()
	w.settle(w.next(w.consumer("g"), "kept", 1).Ack())
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// write replaces a file by a text that has to have something.
func write(t *testing.T, path, text, has string) {
	t.Helper()
	if !strings.Contains(text, has) {
		t.Fatalf("%s would be %q, without %q", path, text, has)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
