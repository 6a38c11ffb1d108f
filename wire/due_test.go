package wire

import (
	"bytes"
	"testing"

	"github.com/columbamq/columba/core"
)

func TestDue_HeadAndRecordsAreTheFrame(t *testing.T) {
	d := sampleDue()
	whole, at := BeginFrame(nil, TypeDue, FlagMore, 7)
	whole = d.Append(whole)
	EndFrame(whole, at)
	head := AppendDueHead(nil, 7, FlagMore, d.Entries, len(d.Records))
	if got := append(head, d.Records...); !bytes.Equal(got, whole) || len(whole) != FrameHeaderLen+DueLen(2, len(d.Records)) {
		t.Errorf("head and records are %x, want %x", got, whole)
	}
}

func TestDue_EntriesHaveAChecksum(t *testing.T) {
	good := sampleDue().Append(nil)
	for i := 4; i < DueLen(2, 0); i++ {
		bad := bytes.Clone(good)
		bad[i] ^= 4
		if err := new(Due).Decode(bad); core.CodeOf(err) != core.CodeBadRecord {
			t.Errorf("byte %d damaged: got %v, want %s", i, err, core.CodeBadRecord)
		}
	}
}

func TestDeliverAt_BehindAnyAttribute(t *testing.T) {
	for name, r := range map[string]*Record{
		"alone":           {DeliverAt: 5},
		"with all others": fullRecord(),
		"none":            {Key: []byte("key"), ExpireAt: 9, Payload: []byte("x")},
		"a delay":         {Delay: 7},
	} {
		if got := DeliverAt(mustAppendRecord(t, nil, r)); got != r.DeliverAt {
			t.Errorf("%s: got %d, want %d", name, got, r.DeliverAt)
		}
	}
}
