package deliverytoken

import (
	"crypto/hmac"
	"crypto/rand"
	"encoding/hex"
	"log/slog"

	"github.com/columbamq/columba/core"
)

// Key is a secret of the cluster. The zero Key means "none".
type Key [32]byte

// NewKey makes a key from the system's random source.
func NewKey() Key {
	var k Key
	rand.Read(k[:]) // never fails: see crypto/rand
	return k
}

// IsZero reports whether there is no key.
func (k Key) IsZero() bool { return k == Key{} }

// String and LogValue hide the key, so that it stays out of logs.
func (k Key) String() string       { return "redacted" }
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// MarshalText writes the key itself in hex, for the cluster's settings only.
func (k Key) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, k[:]), nil }

// UnmarshalText reads what MarshalText wrote.
func (k *Key) UnmarshalText(b []byte) error {
	if len(b) != hex.EncodedLen(len(k)) {
		return core.Errorf(core.CodeCorrupt, "key has %d hex digits, not %d", len(b), hex.EncodedLen(len(k)))
	}
	if _, err := hex.Decode(k[:], b); err != nil {
		return core.Errorf(core.CodeCorrupt, "key holds a character that is not hex")
	}
	return nil
}

// Keys are the secrets that are valid: tokens are sealed with Current and opened with either.
type Keys struct {
	Current  Key `json:"current"`
	Previous Key `json:"previous"` // zero outside a rotation
}

// LogValue hides the keys: a logger would print them by MarshalText.
func (k Keys) LogValue() slog.Value { return slog.StringValue("redacted") }

// sealed compares in constant time. A missing key seals nothing.
func (k Keys) sealed(body, sum []byte) bool {
	for _, key := range [...]Key{k.Current, k.Previous} {
		if !key.IsZero() && hmac.Equal(mac(key, body), sum) {
			return true
		}
	}
	return false
}
