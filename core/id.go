package core

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ID is a 128-bit identifier in the layout of UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, then
// random bits, so that ids sort by the time of their making. The zero ID means "none".
type ID [16]byte

// The identified nouns. Each is its own type so that one cannot be passed for another.
type (
	QueueID   struct{ ID }
	GroupID   struct{ ID }
	ExtentID  struct{ ID }
	MessageID struct{ ID }
	// RunID names one run of a process: new at each start, kept in memory and in the headers it writes.
	RunID struct{ ID }
	// DiskID is minted once with a store's directory and never changed; a wiped disk has a new one.
	DiskID struct{ ID }
	// WriterToken is the secret that lets one input host open an extent for appending.
	WriterToken struct{ ID }
)

// HostID is the configured or generated name of a host, stable over restarts.
type HostID string

// Seq is the position of a record in an extent: from 1, contiguous. 0 means "before the first".
type Seq uint64

// NewID makes an ID for the instant now from the system's random source. Safe for concurrent use.
func NewID(now time.Time) ID {
	var id ID
	rand.Read(id[:]) // never fails: see crypto/rand
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(now.UnixMilli()))
	copy(id[:6], ms[2:])
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

// IsZero reports whether the id means "none".
func (id ID) IsZero() bool { return id == ID{} }

// Time is the instant, in whole milliseconds, the id was made for.
func (id ID) Time() time.Time {
	var ms [8]byte
	copy(ms[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:])))
}

// String is the usual 8-4-4-4-12 form in lower-case hex.
func (id ID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], id[0:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:36], id[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// ParseID reads the form that String writes; anything else is CodeBadID.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return ID{}, Errorf(CodeBadID, "id %q is not of the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", clip(s))
	}
	packed := s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
	if _, err := hex.Decode(id[:], []byte(packed)); err != nil {
		return ID{}, Errorf(CodeBadID, "id %q holds a character that is not hex", clip(s))
	}
	return id, nil
}

// IDFromBytes reads an id of exactly 16 bytes.
func IDFromBytes(b []byte) (ID, error) {
	if len(b) != 16 {
		return ID{}, Errorf(CodeBadID, "id has %d bytes, not 16", len(b))
	}
	return ID(b), nil
}

// MarshalText makes ids readable in JSON and YAML.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is ParseID.
func (id *ID) UnmarshalText(b []byte) error {
	v, err := ParseID(string(b))
	if err == nil {
		*id = v
	}
	return err
}

// Receipt names one stored message for ever: the extent that holds it and its position there.
type Receipt struct {
	Extent ExtentID
	Seq    Seq
}

// String is extent:seq, the form the CLI prints and takes.
func (r Receipt) String() string { return fmt.Sprintf("%s:%d", r.Extent, r.Seq) }

// ParseReceipt reads the form that String writes; CodeBadID.
func ParseReceipt(s string) (Receipt, error) {
	extent, seq, ok := strings.Cut(s, ":")
	n, err := strconv.ParseUint(seq, 10, 64)
	if !ok || err != nil {
		return Receipt{}, Errorf(CodeBadID, "receipt %q is not of the form extent:seq", clip(s))
	}
	id, err := ParseID(extent)
	return Receipt{Extent: ExtentID{ID: id}, Seq: Seq(n)}, err
}
