package wire

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
)

func TestNextFrame_SplitsMessages(t *testing.T) {
	msg := AppendFrame(nil, TypeDrain, 1, nil)
	msg, at := BeginFrame(msg, TypeDeliver, FlagTokens, 2)
	msg = append(msg, "body"...)
	EndFrame(msg, at)
	msg, at = BeginFrame(msg, TypeConsumeCredit, FlagRecall, 2)
	msg = append(msg, "body"...)
	EndFrame(msg, at)
	msg = AppendFrame(msg, TypeCommitted, 3, AppendPosition(nil, 9))

	want := []Frame{
		{Type: TypeDrain, Version: 1, Stream: 1, Body: []byte{}},
		{Type: TypeDeliver, Version: 1, Flags: FlagTokens, Stream: 2, Body: []byte("body")},
		{Type: TypeConsumeCredit, Version: 1, Flags: FlagRecall, Stream: 2, Body: []byte("body")},
		{Type: TypeCommitted, Version: 1, Stream: 3, Body: []byte{9, 0, 0, 0, 0, 0, 0, 0}},
	}
	var got []Frame
	for len(msg) > 0 {
		f, rest, err := NextFrame(msg)
		if err != nil {
			t.Fatal(err)
		}
		got, msg = append(got, f), rest
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("frames differ (-want +got):\n%s", diff)
	}
}

func TestNextFrame_RefusesBadHeaders(t *testing.T) {
	good := AppendFrame(nil, TypePublish, 5, []byte("body"))
	with := func(at int, v ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], v)
		return b
	}
	for name, test := range map[string]struct {
		msg  []byte
		want core.Code
	}{
		"header cut off": {good[:FrameHeaderLen-1], core.CodeBadFrame},
		"body cut off":   {good[:len(good)-1], core.CodeBadFrame},
		"length 4 G":     {with(8, 255, 255, 255, 255), core.CodeBadFrame},
		"type 0":         {with(0, 0), core.CodeBadFrame},
		"version 0":      {with(1, 0), core.CodeBadFrame},
		"newer version":  {with(1, FrameVersion+1), core.CodeVersion},
		"unknown flag":   {with(2, 1), core.CodeVersion},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := NextFrame(test.msg); core.CodeOf(err) != test.want {
				t.Errorf("NextFrame = %v, want %s", err, test.want)
			}
		})
	}
}

func TestFrameHeads_EqualWholeFrames(t *testing.T) {
	records, batch := sampleRecords(), sampleBatch()
	tokens := AppendToken(AppendToken(nil, []byte("a")), []byte("b"))
	deliver := Deliver{Handle: 7, Runs: sampleRuns, Records: records, Tokens: tokens}
	publish := Publish{First: 3, Records: records}
	appended := AppendBody{Committed: 4, Batch: batch}
	whole := func(ty FrameType, flags uint16, body []byte) []byte {
		return append(AppendFrameHeader(nil, ty, flags, 9, len(body)), body...)
	}
	for name, test := range map[string]struct{ got, want []byte }{
		"publish": {append(AppendPublishHead(nil, 9, 3, len(records)), records...), whole(TypePublish, 0, publish.Append(nil))},
		"append":  {append(AppendAppendHead(nil, 9, 4, len(batch)), batch...), whole(TypeAppend, 0, appended.Append(nil))},
		"batches": {append(AppendBatchesHead(nil, 9, len(batch)), batch...), whole(TypeBatches, 0, batch)},
		"deliver": {
			append(append(AppendDeliverHead(nil, 9, FlagTokens, 7, sampleRuns, len(records), len(tokens)), records...), tokens...),
			whole(TypeDeliver, FlagTokens, deliver.Append(nil)),
		},
	} {
		if !bytes.Equal(test.got, test.want) {
			t.Errorf("%s: head and bulk are %x, want %x", name, test.got, test.want)
		}
	}
}

func TestNextFrame_AllocatesNothing(t *testing.T) {
	msg := AppendFrame(nil, TypePublish, 5, []byte("body"))
	if n := testing.AllocsPerRun(100, func() {
		if _, _, err := NextFrame(msg); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("NextFrame allocates %v times, want 0", n)
	}
}

func TestNextToken_RefusesBadTokens(t *testing.T) {
	long := binary.LittleEndian.AppendUint16(nil, MaxToken+1)
	for _, tokens := range [][]byte{{}, {1}, {0, 0}, {2, 0, 'x'}, append(long, make([]byte, MaxToken+1)...)} {
		if _, _, err := NextToken(tokens); core.CodeOf(err) != core.CodeBadFrame {
			t.Errorf("NextToken(%d bytes) = %v, want %s", len(tokens), err, core.CodeBadFrame)
		}
	}
}
