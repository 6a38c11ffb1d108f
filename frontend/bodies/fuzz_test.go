package bodies_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/frontend/bodies"
)

// FuzzStrictJSON reads any text as the bodies of several calls. An accepted body stays the same when it is encoded and
// decoded again.
func FuzzStrictJSON(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"queue":"/t/a","messages":[{"payload":"YQ==","headers":{"a":"b"},"delay":"1.5s","deliverAt":"2026-01-02T03:04:05Z"}]}`, `{"tokens":["a",null]}`,
		`{"queue":"/t/a","group":"g","maxMessages":"10","wait":"20s"}`, `{"spec":{"queue":"/t/a","name":"g","lockTimeout":"-1s"}}`, "{\"tokens\":[\"\xff\"]}", `[`, ``, `{"a":1}`, `{"maxMessages":1e400}`,
	} {
		f.Add([]byte(s))
	}
	codec := bodies.StrictJSON("json")
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range []proto.Message{&pb.PublishRequest{}, &pb.PullRequest{}, &pb.AckRequest{}, &pb.NackRequest{}, &pb.CancelRequest{}, &pb.CreateGroupRequest{}, &pb.StartOperationRequest{}} {
			if codec.Unmarshal(b, m) != nil {
				continue
			}
			text, err := codec.Marshal(m)
			if err != nil {
				t.Fatalf("%T that was read cannot be written: %v", m, err)
			}
			again := m.ProtoReflect().New().Interface()
			if err := codec.Unmarshal(text, again); err != nil || !proto.Equal(m, again) {
				t.Fatalf("%T comes back as %v (%v), want %v", m, again, err, m)
			}
		}
	})
}
