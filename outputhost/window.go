package outputhost

import "github.com/columbamq/columba/wire"

// window is what a consumer may still be sent. One message that is larger than the bytes left takes them below zero: what is granted then makes up for
// that first.
type window struct{ messages, bytes int }

// maxWindow bounds the messages of a window.
const maxWindow = 1 << 20

// grant adds what a consumer takes on top, up to mostBytes. The rest is forgotten.
func (w *window) grant(more wire.Credit, mostBytes int) {
	w.messages = int(min(int64(w.messages)+int64(more.Messages), maxWindow))
	w.bytes += int(min(more.Bytes, uint64(max(mostBytes-w.bytes, 0))))
}

// spend takes what was sent.
func (w *window) spend(messages, bytes int) {
	w.messages -= messages
	w.bytes -= bytes
}

// recall takes back the messages, and says how many those are.
func (w *window) recall() wire.Credit {
	back := wire.Credit{Messages: uint32(max(0, w.messages))}
	w.messages = 0
	return back
}
