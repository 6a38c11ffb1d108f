package intake

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/columbamq/columba/core"
)

func TestPlacesOfAnAddressAndOfAll(t *testing.T) {
	p := newPlaces([kinds]int{publicCall: 8, publicPull: 4, hostCall: 4, hostPull: 4})
	enter := func(n int, k kind, address string, want core.Code) {
		t.Helper()
		for i := range n {
			if err := p.enter(k, address); core.CodeOf(err) != want {
				t.Fatalf("call %d of %s: %v, want %q", i, address, err, want)
			}
		}
	}
	enter(3, publicPull, "a", "")
	enter(1, publicPull, "a", core.CodeThrottled) // three quarters
	enter(1, publicPull, "b", "")
	enter(1, publicPull, "b", core.CodeThrottled) // all are taken
	enter(6, publicCall, "a", "")                 // pulls take no place of calls
	enter(3, hostPull, "a", "")
	p.leave(publicPull, "a")
	enter(1, publicPull, "b", "")
	for range 2 {
		p.leave(publicPull, "a")
		p.leave(publicPull, "b")
	}
	if n := len(p.mu.byAddress[publicPull]); n != 0 || p.under(publicPull) != 0 {
		t.Errorf("%d addresses without calls are kept, %d places are taken", n, p.under(publicPull))
	}
}

// TestCallWithoutAPlaceIsNotRead has a call more come than there are places for: it is refused before its body is there.
func TestCallWithoutAPlaceIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newIntake()
		call := servedIn(t, in)
		const pull = "/columba.v1.MessageService/Pull"
		k := kindOf(pull, true)
		for range mostCalls[k] * 3 / 4 {
			if err := in.places.enter(k, "client"); err != nil {
				t.Fatal(err)
			}
		}
		never, w := io.Pipe()
		defer w.Close()
		req := post(t, pull, "application/json", never)
		req.ContentLength = 16
		res, err := call(t.Context(), req)
		status, text := answerOf(t, res, err)
		for _, part := range []string{`"code":"resource_exhausted"`, "3000 pulls of this address are under way, which is the limit; pull with fewer at once"} {
			if !strings.Contains(text, part) {
				t.Errorf("the answer %s lacks %q", text, part)
			}
		}
		if status != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" || in.public.Held() != 0 {
			t.Errorf("a pull too many: %d, Retry-After %q, %d bytes held", status, res.Header.Get("Retry-After"), in.public.Held())
		}
		res, err = call(t.Context(), post(t, publish, "application/json", strings.NewReader(`{}`)))
		if status, text := answerOf(t, res, err); status != http.StatusOK {
			t.Errorf("a call of another kind: %d %s", status, text)
		}
		if got := kindOf("/columba.v1.OutputService/Pull", false); got != hostPull {
			t.Errorf("a pull of a host is of kind %d", got)
		}
	})
}
