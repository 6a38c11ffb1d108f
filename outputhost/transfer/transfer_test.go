package transfer

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/wire/ws"
)

// TestTransfer_DoubtCoversAnAppend adds up how long an append may be under way: what it takes until it is sent, on the
// wire, and at an input host.
func TestTransfer_DoubtCoversAnAppend(t *testing.T) {
	const waitsForExtent, written = 8 * time.Second, 15 * time.Second
	if longest := Timeout + ws.LateAfter + waitsForExtent + written; longest > dispatch.TransferDoubt {
		t.Errorf("an append may be under way for %s, and is looked for after %s", longest, dispatch.TransferDoubt)
	}
	if lookTimeout >= Timeout {
		t.Errorf("a look-up may take %s, and no time is left of %s for the append", lookTimeout, Timeout)
	}
}

// TestLetter_Timeout waits longer for the append of a message that is handed out from nowhere else meanwhile: while
// disks are slow, appends of messages that are due at once would all be of unknown outcome.
func TestLetter_Timeout(t *testing.T) {
	for _, c := range []struct {
		wait    time.Duration // until the message is due; below 0: it never is
		returns bool
		want    time.Duration
	}{
		{-1, false, Timeout}, {0, true, retry}, {3 * time.Second, true, 3 * time.Second}, {time.Hour, true, Timeout},
		{0, false, displaced}, {time.Second, false, displaced}, {8 * time.Second, false, 8 * time.Second}, {time.Hour, false, Timeout},
	} {
		x := letter{Transfer: dispatch.Transfer{To: dispatch.RetryQueue, Returns: c.returns}}
		if c.wait >= 0 {
			x.Due = now.Add(c.wait)
		}
		if got := x.timeout(now); got != c.want {
			t.Errorf("due in %s, returns %v: the append has %s, want %s", c.wait, c.returns, got, c.want)
		}
	}
}
