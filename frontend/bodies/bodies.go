// Package bodies owns the rules for the bodies of requests to the public API.
package bodies

import (
	"bytes"
	"fmt"
	"net/http"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// StrictJSON is Connect's JSON codec, by the name that it has, but for a field that is not known: it is an error. A
// person writes this JSON, and a payload under a misspelt name must not become an empty message.
type StrictJSON string

// Name of the codec.
func (c StrictJSON) Name() string { return string(c) }

// Marshal writes a message.
func (StrictJSON) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a protobuf message", v)
	}
	return protojson.Marshal(m)
}

// Unmarshal reads a message, all fields of which must be known.
func (StrictJSON) Unmarshal(b []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a protobuf message", v)
	}
	if len(b) == 0 {
		return fmt.Errorf("the body is empty; send at least {}")
	}
	if err := protojson.Unmarshal(b, m); err == nil || utf8.Valid(b) {
		return err
	}
	switch m.(type) {
	case *pb.AckRequest, *pb.NackRequest, *pb.RejectRequest, *pb.ExtendRequest:
		// A token that is no text is refused like any other bad one, and the good ones are settled.
		proto.Reset(m)
		return protojson.Unmarshal(bytes.ToValidUTF8(b, []byte("\uFFFD")), m)
	}
	return fmt.Errorf("the body is not UTF-8; send a payload that is not text in base64")
}

// Limit refuses a request that says it is larger than most bytes by an error of the catalogue: the library's own status
// for it, 429, invites to try again.
func Limit(most int, next http.Handler) http.Handler {
	errors := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength <= int64(most) || !errors.IsSupported(r) {
			next.ServeHTTP(w, r)
			return
		}
		_ = errors.Write(w, r, convert.RPCError(core.Errorf(core.CodeTooLarge, "the request has %d bytes, at most %d are taken; send it in several", r.ContentLength, most)))
	})
}
