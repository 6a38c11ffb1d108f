// Package deliverytoken owns the delivery token, the proof of one delivery: its fields, its seal with the cluster's
// keys, and the detection of forged tokens.
//
// A consumer's stream carries no token for each message: an output host seals one token for an extent,
// [Token.SealExtent], and the consumer derives from it the tokens of deliveries that it has to settle elsewhere,
// [core.DeliveryToken].
package deliverytoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"

	"github.com/columbamq/columba/core"
)

// Token names one delivery of one message to one group.
type Token struct {
	Queue      core.QueueID
	Group      core.GroupID
	Extent     core.ExtentID
	Seq        core.Seq
	Attempt    uint16 // from 1
	Session    uint32 // that the message was handed to: a consumer's, or a unary pull
	Epoch      uint64 // of the group, below 2³²; raised by each seek
	Generation uint64 // of the ownership of the share
	// Derived: the consumer has named seq and attempt itself, on the strength of a token of the extent. It proves that its
	// bearer was delivered messages of the extent in this epoch, under this or a later generation.
	Derived bool
}

// Receipt names the message in its extent.
func (t Token) Receipt() core.Receipt { return core.Receipt{Extent: t.Extent, Seq: t.Seq} }

// version is the first byte of a token; another one is refused.
const version = 1

// Sizes in bytes:
//
//	version u8 | queue 16 | group 16 | extent 16 | seq u64 | attempt u16 | session u32 | epoch u32 | generation u64 | mac 16
const (
	bodyLen = 1 + 3*16 + 8 + 2 + 4 + 4 + 8
	macLen  = 16
)

// Len is the number of characters of a token that an output host sealed, DerivedLen of one that core.DeliveryToken
// made.
const (
	Len        = (8*(bodyLen+macLen) + 5) / 6
	DerivedLen = Len + (8*deliveryLen+5)/6
)

// deliveryLen is what core.DeliveryToken adds: seq u64 | attempt u16.
const deliveryLen = 8 + 2

// encoding leaves no second spelling of the same bytes.
var encoding = base64.RawURLEncoding.Strict()

// Seal makes the token's text: base64url, no padding, MACed with the current key. Keys without a current one cannot
// seal anything and panic: a token made with them could be forged by everybody.
func (t Token) Seal(keys Keys) string {
	if keys.Current.IsZero() {
		panic("deliverytoken: sealed without a key")
	}
	b := make([]byte, 0, bodyLen+macLen)
	b = append(b, version)
	b = append(b, t.Queue.ID[:]...)
	b = append(b, t.Group.ID[:]...)
	b = append(b, t.Extent.ID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(t.Seq))
	b = binary.BigEndian.AppendUint16(b, t.Attempt)
	b = binary.BigEndian.AppendUint32(b, t.Session)
	b = binary.BigEndian.AppendUint32(b, uint32(t.Epoch))
	b = binary.BigEndian.AppendUint64(b, t.Generation)
	return encoding.EncodeToString(append(b, mac(keys.Current, b)...))
}

// SealExtent seals the token of the extent, for the session that was delivered messages of it: Seq and Attempt are
// ignored. It is no delivery token by itself.
func (t Token) SealExtent(keys Keys) string {
	t.Seq, t.Attempt = 0, 0
	return t.Seal(keys)
}

// Open reads a token sealed with one of the keys, or one derived from such a token of an extent. Everything else –
// truncated, altered, of another cluster, of another version, the token of an extent – is CodeBadToken with one and the
// same text, so that an answer teaches a forger nothing. An empty string and a receipt are refused with a text of their
// own: they are mistakes, and no attempt to forge.
func Open(keys Keys, s string) (Token, error) {
	if len(s) == DerivedLen {
		return openDerived(keys, s)
	}
	if s == "" {
		return Token{}, core.Errorf(core.CodeBadToken, "delivery token is empty; pass the token of a delivery")
	}
	if r, err := core.ParseReceipt(s); err == nil {
		return Token{}, core.Errorf(core.CodeBadToken, "%s is a receipt, which only names where a message is stored; pass the token of a delivery", r)
	}
	t, err := open(keys, s)
	if err == nil && t.Seq == 0 {
		return Token{}, errBad()
	}
	return t, err
}

func openDerived(keys Keys, s string) (Token, error) {
	b, err := encoding.DecodeString(s[Len:])
	if err != nil || len(b) != deliveryLen {
		return Token{}, errBad()
	}
	t, err := open(keys, s[:Len])
	if err != nil || t.Seq != 0 || t.Attempt != 0 {
		return Token{}, errBad()
	}
	t.Seq, t.Attempt, t.Derived = core.Seq(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint16(b[8:]), true
	if t.Seq == 0 || t.Attempt == 0 {
		return Token{}, errBad()
	}
	return t, nil
}

func open(keys Keys, s string) (Token, error) {
	if len(s) != Len {
		return Token{}, errBad()
	}
	b, err := encoding.DecodeString(s)
	if err != nil || len(b) != bodyLen+macLen {
		return Token{}, errBad()
	}
	body, sum := b[:bodyLen], b[bodyLen:]
	if !keys.sealed(body, sum) || body[0] != version {
		return Token{}, errBad()
	}
	var t Token
	b = body[1:]
	for _, id := range [...]*core.ID{&t.Queue.ID, &t.Group.ID, &t.Extent.ID} {
		b = b[copy(id[:], b):]
	}
	t.Seq = core.Seq(binary.BigEndian.Uint64(b))
	t.Attempt = binary.BigEndian.Uint16(b[8:])
	t.Session = binary.BigEndian.Uint32(b[10:])
	t.Epoch = uint64(binary.BigEndian.Uint32(b[14:]))
	t.Generation = binary.BigEndian.Uint64(b[18:])
	return t, nil
}

func mac(k Key, body []byte) []byte {
	h := hmac.New(sha256.New, k[:])
	h.Write(body)
	return h.Sum(nil)[:macLen]
}

func errBad() error {
	return core.Errorf(core.CodeBadToken, "delivery token is not one of this cluster; pass the token of a delivery unchanged")
}

// Distinct returns tokens without those that came before. To settle a delivery twice is refused as stale, although the
// first settlement was applied.
func Distinct(tokens []string) []string {
	seen := make(map[string]bool, len(tokens))
	return slices.DeleteFunc(slices.Clone(tokens), func(t string) bool {
		again := seen[t]
		seen[t] = true
		return again
	})
}
