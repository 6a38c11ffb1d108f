package attack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

// These bounds limit the effect of an attack on the server and on other clients.
const (
	maxMemory = 512 << 20 // bytes resident, at the worst moment
	maxFactor = 2         // of the 99th percentile of another client's calls, against the same without the attack
	// noise is what the machine adds by itself: the attacker, the server and the other client share two processors, and
	// each of the ten goroutines that a publish passes may wait for its turn.
	noise = 50 * time.Millisecond
	// onset is what calls may take while an attack begins. Thousands of requests at once keep two processors busy for up
	// to a second, with an attacker on one of them.
	onset = 300 * time.Millisecond
)

// Shape of a run: calm and attacked turns take turns, so that both meet the same machine.
const (
	turns     = 2
	turnTime  = time.Second
	calmTime  = time.Second / 2 // a calm turn, which has hundreds of calls
	onsetTime = time.Second     // from the begin of an attack to the turn
)

// victim is another client, which publishes by HTTP one message after another.
type victim struct {
	s      *process.Server
	client *http.Client
}

func (v *victim) call(ctx context.Context, method, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+v.s.Addr+"/columba.v1."+method, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := v.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && (res.StatusCode != http.StatusOK || bytes.Contains(text, []byte(`"error"`))) {
		err = fmt.Errorf("%s: %s: %.300s", method, res.Status, text)
	}
	return err
}

// publish measures calls for a while.
func (v *victim) publish(t *testing.T, d time.Duration, calls []time.Duration) []time.Duration {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		began := time.Now()
		if err := v.call(t.Context(), "MessageService/Publish", `{"queue":"/t/victim","messages":[{"payload":"aGVsbG8="}]}`); err != nil {
			t.Errorf("another client: %v", err)
		}
		calls = append(calls, time.Since(began))
	}
	return calls
}

func percentile99(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)*99/100]
}

// withstand starts a server and attacks it in every second turn. Another client must not become slow.
func withstand(t *testing.T, name string) { attackIn(t, name, turns, turnTime) }

// attackIn attacks in so many turns, and returns the server.
func attackIn(t *testing.T, name string, turns int, turn time.Duration) *process.Server {
	t.Helper()
	a := startAttacker(t, name)
	s := process.StartServer(t)
	v := &victim{s, &http.Client{Timeout: process.Patience, Transport: &http.Transport{}}}
	admin := s.Client().Admin()
	for _, queue := range []string{"/t/victim", "/t/prey"} {
		if _, err := admin.CreateQueue(t.Context(), core.QueueSpec{Path: queue}); err != nil {
			t.Fatal(err)
		}
		for _, group := range []string{"a", "b", "c", "d"} {
			if _, err := admin.CreateGroup(t.Context(), core.GroupSpec{Queue: queue, Name: group}); err != nil {
				t.Fatal(err)
			}
		}
	}
	v.publish(t, 200*time.Millisecond, nil) // opens an extent
	measure := func() (without, first, with time.Duration) {
		var calm, beginning, attacked []time.Duration
		for range turns {
			calm = v.publish(t, calmTime, calm)
			a.begin(s.Addr)
			beginning = v.publish(t, onsetTime, beginning)
			attacked = v.publish(t, turn, attacked)
			a.end()
			s.Alive()
		}
		without, first, with = percentile99(calm), percentile99(beginning), percentile99(attacked)
		t.Logf("p99 of another client: %s alone (%d calls), %s when the attack begins (%d), %s beside it (%d)",
			without, len(calm), first, len(beginning), with, len(attacked))
		return without, first, with
	}
	without, first, with := measure()
	if first > onset { // of so few calls it is the slowest one: the machine may have stood still, which it does not each time
		without, first, with = measure()
	}
	peak := peakMemory(t, s.Pid())
	t.Logf("at most %d MiB resident", peak>>20)
	if peak > maxMemory {
		t.Errorf("the server took %d MiB, want at most %d", peak>>20, maxMemory>>20)
	}
	if first > onset {
		t.Errorf("p99 of another client is %s when the attack begins, want at most %s", first, onset)
	}
	if with > max(maxFactor*without, noise) {
		t.Errorf("p99 of another client is %s beside the attack and %s without, want at most %d times as much, or %s", with, without, maxFactor, noise)
	}
	answers(t, v)
	return s
}

// peakMemory is the most that a process had resident, in bytes.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("the system does not tell the memory of a process")
	return 0
}

// answers fails the test unless every kind of page works.
func answers(t *testing.T, v *victim) {
	t.Helper()
	for _, page := range []string{"/healthz", "/readyz", "/metrics", "/debug/pprof/", "/debug/pprof/heap"} {
		res, err := v.client.Get("http://" + v.s.Addr + page)
		if err != nil {
			t.Errorf("after the attack: %v", err)
			continue
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("after the attack %s answers %s", page, res.Status)
		}
	}
	for method, body := range map[string]string{
		"AdminService/GetQueue":  `{"path":"/t/victim"}`,
		"AdminService/GetDepth":  `{"queue":"/t/victim"}`,
		"AdminService/ListHosts": `{}`,
		"MessageService/Pull":    `{"queue":"/t/victim","group":"a","wait":"0.1s"}`,
	} {
		if err := v.call(t.Context(), method, body); err != nil {
			t.Errorf("after the attack: %v", err)
		}
	}
	if got := v.s.Must("", "consume", "/t/victim", "b", "--count", "1"); strings.TrimSpace(got) != "hello" {
		t.Errorf("after the attack a consumer gets %q", got)
	}
}
