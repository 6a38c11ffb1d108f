// Package ring owns a log on segments: files that are written whole when they are made, and then used again and again.
// A group of bytes is appended by one write and one sync. At a start the log tells its end, which a crash may have
// torn, from damage.
package ring

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"

	"github.com/columbamq/columba/core"
)

// Layout of a segment: groups one after another, each on a border of blocks, so that no block with durable bytes is
// written again before the segment is used again.
//
//	┌──────┬──────┬──────┬────────┬────────┬────────┬────────┬─────────┬────────┬──────┬─────────┬─────┬─────┬──────┬──────┬─────────┐
//	│ CRG1 │ hsum │ bsum │ length │ serial │ number │ secret │ durable │ before │ kind │ version │ size│ run │ disk │ body │ 0 … 4Ki │
//	│ u32  │ u32  │ u32  │ u32    │ u64    │ u64    │ u64    │ u64     │ u32    │ u8   │ u8      │ u16 │ 16  │ 16   │      │         │
//	└──────┴──────┴──────┴────────┴────────┴────────┴────────┴─────────┴────────┴──────┴─────────┴─────┴─────┴──────┴──────┴─────────┘
const (
	blockSize = 4 << 10
	headerLen = 88
	magic     = 0x31475243 // "CRG1"

	// FormatVersion of groups that this build writes and reads.
	FormatVersion = 1
)

// Kind says what the body of a group is.
type Kind uint8

const (
	// Records are what the log's owner appended.
	Records Kind = 1
	// Mark has no body: it says how far the log is durable.
	Mark Kind = 2
	// Summary is the last group of a segment that has ended, and says what the owner of the log wants to know of the
	// others at a start. It ends where the segment ends. The last eight bytes of its body are how long what the
	// owner gave is, and the offset of the group in the segment.
	Summary Kind = 3
)

// trailerLen is what a summary has behind what the owner gave.
const trailerLen = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is what a group says of itself.
type header struct {
	kind    Kind
	length  uint32      // bytes of the body
	serial  uint64      // of this use of the segment; no other use of any segment has it
	number  uint64      // of the group in the log, from 1
	secret  uint64      // of the use, see secretOf: what publishers send cannot look like a group of it
	durable uint64      // all groups up to this number were durable when this one was written
	before  uint32      // sum of the header of the group before it in the log
	run     core.RunID  // of the process that wrote it
	disk    core.DiskID // that the log is on
	version byte        // of the layout, as it was read
	blocks  uint16      // of the segment, 65535 at most: a file that is shorter was cut off

	sum     uint32 // of the header, which includes bodySum
	bodySum uint32
}

// put writes the header into the first headerLen bytes of group, whose body follows them, and notes the sums.
func (h *header) put(group []byte) {
	le := binary.LittleEndian
	h.bodySum = crc32.Checksum(group[headerLen:headerLen+int(h.length)], castagnoli)
	le.PutUint32(group, magic)
	le.PutUint32(group[8:], h.bodySum)
	le.PutUint32(group[12:], h.length)
	le.PutUint64(group[16:], h.serial)
	le.PutUint64(group[24:], h.number)
	le.PutUint64(group[32:], h.secret)
	le.PutUint64(group[40:], h.durable)
	le.PutUint32(group[48:], h.before)
	group[52], group[53] = byte(h.kind), FormatVersion
	le.PutUint16(group[54:], h.blocks)
	copy(group[56:], h.run.ID[:])
	copy(group[72:], h.disk.ID[:])
	h.sum = crc32.Checksum(group[8:headerLen], castagnoli)
	le.PutUint32(group[4:], h.sum)
}

// decodeHeader is false for what is no header: what was never written, or torn, or damaged. One that is sound may still
// be a part of a message that somebody made to look like it: only its secret, or its place, tells that it is none.
func decodeHeader(b []byte) (h header, ok bool) {
	le := binary.LittleEndian
	if len(b) < headerLen || le.Uint32(b) != magic || le.Uint32(b[4:]) != crc32.Checksum(b[8:headerLen], castagnoli) {
		return header{}, false
	}
	return header{
		sum: le.Uint32(b[4:]), bodySum: le.Uint32(b[8:]), length: le.Uint32(b[12:]), serial: le.Uint64(b[16:]), number: le.Uint64(b[24:]),
		secret: le.Uint64(b[32:]), durable: le.Uint64(b[40:]), before: le.Uint32(b[48:]), kind: Kind(b[52]), version: b[53], blocks: le.Uint16(b[54:]),
		run: core.RunID{ID: core.ID(b[56:72])}, disk: core.DiskID{ID: core.ID(b[72:88])},
	}, true
}

// known is CodeNewerFormat for a group of a later version.
func (h *header) known() error {
	if h.version > FormatVersion {
		return core.Errorf(core.CodeNewerFormat, "a group of the log has version %d, and this build knows %d; run the version of columba that wrote it, or a later one", h.version, FormatVersion)
	}
	return nil
}

// secretOf is the secret of a use. A start makes it again from the key, so that it knows a group of a use whose first
// group is lost from what publishers sent.
func secretOf(key []byte, serial uint64) uint64 {
	mac := hmac.New(sha256.New, key)
	mac.Write(binary.LittleEndian.AppendUint64(nil, serial))
	return binary.LittleEndian.Uint64(mac.Sum(nil))
}

// holds reports whether the body is the one that the header was written with.
func (h *header) holds(body []byte) bool {
	return len(body) == int(h.length) && crc32.Checksum(body, castagnoli) == h.bodySum
}

// sameUse reports whether both groups were written in one use of a segment.
func (h *header) sameUse(g *header) bool { return h.serial == g.serial && h.secret == g.secret }

// follows reports whether the group is the next one of the log after g.
func (h *header) follows(g *header) bool { return h.number == g.number+1 && h.before == g.sum }

// span is how many bytes of a segment a group with such a body takes.
func span(body int) int64 { return (headerLen + int64(body) + blockSize - 1) / blockSize * blockSize }
