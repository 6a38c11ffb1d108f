package core

import (
	"encoding/base64"
	"encoding/binary"
)

// DeliveryToken derives the token of one delivery from the token of its extent, which an output host gives to a
// consumer with the name of the extent. It needs no key; core/deliverytoken opens it.
func DeliveryToken(extent string, seq Seq, attempt uint16) string {
	var b [10]byte
	binary.BigEndian.PutUint64(b[:], uint64(seq))
	binary.BigEndian.PutUint16(b[8:], attempt)
	return extent + base64.RawURLEncoding.EncodeToString(b[:])
}
