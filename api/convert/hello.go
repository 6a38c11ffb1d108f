package convert

import (
	"google.golang.org/protobuf/proto"

	"github.com/columbamq/columba/core"
)

// MaxHello bounds the frame that opens a stream, bytes. Its names take less than 1 KiB.
const MaxHello = 4 << 10

// DecodeHello reads the frame that opens a stream into m. CodeTooLarge above MaxHello, CodeBadFrame when it does not
// parse.
func DecodeHello(body []byte, m proto.Message) error {
	if len(body) > MaxHello {
		return core.Errorf(core.CodeTooLarge, "hello of %d bytes; at most %d are taken", len(body), MaxHello)
	}
	if err := proto.Unmarshal(body, m); err != nil {
		return core.Errorf(core.CodeBadFrame, "hello does not parse: %w", err)
	}
	return nil
}
