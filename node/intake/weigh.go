package intake

import (
	"bytes"
	"runtime"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/columbamq/columba/api/columbav1"
)

// Decoding allocates about this many bytes for each of these.
const (
	messageWeight = 192 // a message, with its place in a list or a map
	itemWeight    = 24  // an element of a list that is no message
)

// weighedAtOnce is how many fields, or bytes of JSON, are weighed before others may have the processor: weighing never
// waits, and takes up to a second.
const weighedAtOnce = 4 << 10

// procedures are the calls of the module's services by their path.
var procedures = sync.OnceValue(func() map[string]protoreflect.MethodDescriptor {
	out := map[string]protoreflect.MethodDescriptor{}
	protoregistry.GlobalFiles.RangeFilesByPackage(pb.File_columba_v1_public_proto.Package(), func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				out["/"+string(s.FullName())+"/"+string(m.Name())] = m
			}
		}
		return true
	})
	return out
})

// procedure is what a path calls, if it calls anything, and whether clients may call it; the other calls are those of
// hosts.
func procedure(path string) (input protoreflect.MessageDescriptor, public, ok bool) {
	m := procedures()[path]
	if m == nil {
		return nil, false, false
	}
	service := string(m.Parent().Name())
	return m.Input(), strings.HasPrefix(service, "Message") || strings.HasPrefix(service, "Admin"), true
}

// weighProto estimates what a message takes when it is decoded, in bytes; it stops counting beyond most. If the message
// does not parse, the part before the error is weighed: decoding ends there, too.
func weighProto(b []byte, m protoreflect.MessageDescriptor, most int64) (weight int64) {
	fields := m.Fields()
	for i := 1; len(b) > 0 && weight <= most; i++ {
		if i%weighedAtOnce == 0 {
			runtime.Gosched()
		}
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return weight
		}
		b = b[n:]
		n = protowire.ConsumeFieldValue(num, kind, b)
		if n < 0 {
			return weight
		}
		value := b[:n]
		b = b[n:]
		field := fields.ByNumber(num)
		if field == nil {
			weight += itemWeight + int64(n) // kept as it is, but each costs time
			continue
		}
		if kind != protowire.BytesType {
			weight += itemWeight
			continue
		}
		inner, _ := protowire.ConsumeBytes(value)
		switch {
		case field.Message() != nil:
			weight += messageWeight + weighProto(inner, field.Message(), most-weight)
		case field.IsList() && field.Kind() != protoreflect.StringKind && field.Kind() != protoreflect.BytesKind:
			weight += 8 * int64(len(inner)) // packed numbers
		default:
			weight += itemWeight + int64(len(inner))
		}
	}
	return weight
}

// weighJSON is the same for JSON: it counts what begins an object and what divides elements, outside of strings.
func weighJSON(b []byte, most int64) (weight int64) {
	for i, steps := 0, 1; i < len(b) && weight <= most; i, steps = i+1, steps+1 {
		if steps%weighedAtOnce == 0 {
			runtime.Gosched()
		}
		switch b[i] {
		case '{':
			weight += messageWeight
		case ',', ':', '[':
			weight += itemWeight
		case '"':
			n := stringLength(b[i+1:])
			weight += int64(n)
			i += n
		}
	}
	return weight
}

// stringLength is how many bytes a JSON string has, from behind its first quote, with the last one.
func stringLength(b []byte) int {
	for at := 0; ; {
		n := bytes.IndexByte(b[at:], '"')
		if n < 0 {
			return len(b)
		}
		at += n + 1
		escapes := 0
		for i := at - 2; i >= 0 && b[i] == '\\'; i-- {
			escapes++
		}
		if escapes%2 == 0 {
			return at
		}
	}
}
