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
