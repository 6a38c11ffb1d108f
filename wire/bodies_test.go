package wire

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
)

// body is what every hand-written frame body is.
type body interface {
	Append(dst []byte) []byte
	Decode(body []byte) error
}

// Position stands for the bodies of AppendPosition, AppendBody for that of TypeAppend.
type Position struct{ Value uint64 }

func (p *Position) Append(dst []byte) []byte { return AppendPosition(dst, p.Value) }
func (p *Position) Decode(b []byte) (err error) {
	p.Value, err = DecodePosition(b)
	return err
}

type AppendBody struct {
	Committed core.Seq
	Batch     []byte
}

func (a *AppendBody) Append(dst []byte) []byte {
	return append(AppendPosition(dst, uint64(a.Committed)), a.Batch...)
}

func (a *AppendBody) Decode(b []byte) (err error) {
	a.Committed, a.Batch, err = DecodeAppend(b)
	return err
}

// kind is one hand-written body: where it is used, how to make one, an example, any.
type kind struct {
	types  []FrameType
	flags  uint16
	new    func() body
	sample body
	draw   func(t *rapid.T) body
}

var kinds = map[string]kind{
	"position": {
		types:  []FrameType{TypeCommitted, TypeAppendAck, TypeReadCredit, TypeReadCommitted, TypeReadSealed},
		new:    func() body { return new(Position) },
		sample: &Position{Value: 4711},
		draw:   func(t *rapid.T) body { return &Position{rapid.Uint64().Draw(t, "value")} },
	},
	"publish": {
		types:  []FrameType{TypePublish},
		new:    func() body { return new(Publish) },
		sample: &Publish{First: 12, Records: sampleRecords()},
		draw: func(t *rapid.T) body {
			return &Publish{First: uint64(drawSeq(t, "first")), Records: drawEncoded(t)}
		},
	},
	"publish ack": {
		types: []FrameType{TypePublishAck},
		new:   func() body { return new(PublishAck) },
		sample: &PublishAck{Runs: []AckRun{
			{First: 1, Count: 10, Status: AckOK, Extent: core.ExtentID{ID: testID(3)}, Base: 501},
			{First: 11, Count: 1, Status: AckRefused, Code: core.CodeTooLarge},
			{First: 12, Count: 2, Status: AckUnknown, Code: core.CodeUnavailable},
		}},
		draw: drawPublishAck,
	},
	"append": {
		types:  []FrameType{TypeAppend},
		new:    func() body { return new(AppendBody) },
		sample: &AppendBody{Committed: 500, Batch: sampleBatch()},
		draw: func(t *rapid.T) body {
			return &AppendBody{drawSeq(t, "committed"), rapid.SliceOfN(rapid.Byte(), BatchHeaderLen, 100).Draw(t, "batch")}
		},
	},
	"credit": {
		types:  []FrameType{TypeConsumeCredit},
		new:    func() body { return new(Credit) },
		sample: &Credit{Messages: 1000, Bytes: 8 << 20},
		draw: func(t *rapid.T) body {
			return &Credit{rapid.Uint32().Draw(t, "messages"), rapid.Uint64().Draw(t, "bytes")}
		},
	},
	"settled": {
		types:  []FrameType{TypeAck, TypeReturn},
		new:    func() body { return new(Settled) },
		sample: &Settled{Handle: 2, Runs: []SeqRun{{Base: 501, Count: 64, Attempt: 1}, {Base: 570, Count: 1, Attempt: 3}}},
		draw:   drawSettled,
	},
	"nack": {
		types:  []FrameType{TypeNack, TypeReject},
		new:    func() body { return new(Nack) },
		sample: &Nack{Handle: 2, Seq: 565, Attempt: 1, DelayMillis: 2000, Reason: []byte("upstream answered 503"), Metadata: []byte(`{"step":2}`)},
		draw: func(t *rapid.T) body {
			return &Nack{
				Handle: rapid.Uint32().Draw(t, "handle"), Seq: drawSeq(t, "seq"), Attempt: rapid.Uint16().Draw(t, "attempt"),
				DelayMillis: rapid.Int64Range(-1, MaxMillis).Draw(t, "delay"),
				Reason:      drawBytes(t, "reason", MaxReason), Metadata: drawBytes(t, "metadata", 300),
			}
		},
	},
	"extend": {
		types:  []FrameType{TypeExtend},
		new:    func() body { return new(Extend) },
		sample: &Extend{Handle: 2, Seq: 566, Attempt: 1, Millis: 30000},
		draw: func(t *rapid.T) body {
			return &Extend{rapid.Uint32().Draw(t, "handle"), drawSeq(t, "seq"), rapid.Uint16().Draw(t, "attempt"), rapid.Int64Range(0, MaxMillis).Draw(t, "millis")}
		},
	},
	"handle": {
		types:  []FrameType{TypeHandle},
		new:    func() body { return new(Handle) },
		sample: &Handle{Handle: 2, Extent: core.ExtentID{ID: testID(3)}},
		draw: func(t *rapid.T) body {
			return &Handle{Handle: rapid.Uint32().Draw(t, "handle"), Extent: core.ExtentID{ID: drawID(t, "extent")}}
		},
	},
	"handle with a token": {
		types:  []FrameType{TypeHandle},
		flags:  FlagTokens,
		new:    func() body { return new(Handle) },
		sample: &Handle{Handle: 2, Extent: core.ExtentID{ID: testID(3)}, Token: []byte("token")},
		draw: func(t *rapid.T) body {
			return &Handle{rapid.Uint32().Draw(t, "handle"), core.ExtentID{ID: drawID(t, "extent")}, rapid.SliceOfN(rapid.Byte(), 1, MaxToken).Draw(t, "token")}
		},
	},
	"deliver": {
		types:  []FrameType{TypeDeliver},
		new:    func() body { return new(Deliver) },
		sample: &Deliver{Handle: 2, Runs: sampleRuns, Records: sampleRecords()},
		draw:   func(t *rapid.T) body { return drawDeliver(t, false) },
	},
	"deliver with tokens": {
		types:  []FrameType{TypeDeliver},
		flags:  FlagTokens,
		new:    func() body { return new(Deliver) },
		sample: &Deliver{Handle: 2, Runs: sampleRuns, Records: sampleRecords(), Tokens: AppendToken(AppendToken(nil, []byte("token-1")), []byte("token-2"))},
		draw:   func(t *rapid.T) body { return drawDeliver(t, true) },
	},
	"due": {
		types:  []FrameType{TypeDue},
		new:    func() body { return new(Due) },
		sample: sampleDue(),
		draw:   drawDue,
	},
	"due, and more": {
		types:  []FrameType{TypeDue},
		flags:  FlagMore,
		new:    func() body { return new(Due) },
		sample: sampleDue(),
		draw:   drawDue,
	},
	"ack result": {
		types:  []FrameType{TypeAckResult},
		new:    func() body { return new(AckResult) },
		sample: &AckResult{Entries: []AckFailure{{Handle: 2, Seq: 570, Attempt: 3, Code: core.CodeStale}}},
		draw: func(t *rapid.T) body {
			a := new(AckResult)
			for range rapid.IntRange(0, 5).Draw(t, "n") {
				a.Entries = append(a.Entries, AckFailure{rapid.Uint32().Draw(t, "handle"), drawSeq(t, "seq"), rapid.Uint16().Draw(t, "attempt"), drawCode(t)})
			}
			return a
		},
	},
}

// sampleDue are two records of a timer extent, the later one due first.
func sampleDue() *Due {
	b, err := AppendRecord(nil, &Record{DeliverAt: 1767225600000, Payload: []byte("one")})
	if err == nil {
		b, err = AppendRecord(b, &Record{Key: []byte("k"), DeliverAt: 1767225600250, Payload: []byte("two")})
	}
	if err != nil {
		panic(err)
	}
	return &Due{Entries: []DueEntry{{Seq: 130_001, Enqueued: 1767225599000123}, {Seq: 17, Enqueued: 1767225598000456}}, Records: b}
}

func drawDue(t *rapid.T) body {
	d := &Due{Records: drawEncoded(t)}
	for b := d.Records; len(b) > 0; _, b, _ = NextRecord(b) {
		d.Entries = append(d.Entries, DueEntry{drawSeq(t, "seq"), rapid.Int64().Draw(t, "enqueued")})
	}
	return d
}

var sampleRuns = []DeliverRun{
	{Base: 501, Count: 1, Attempt: 1, Enqueued: 1767225599000123},
	{Base: 570, Count: 1, Attempt: 3, Enqueued: 1767225600000456},
}

// sampleRecords are two encoded records.
func sampleRecords() []byte {
	b, err := AppendRecord(nil, &Record{Payload: []byte("one")})
	if err == nil {
		b, err = AppendRecord(b, &Record{Key: []byte("k"), Payload: []byte("two")})
	}
	if err != nil {
		panic(err)
	}
	return b
}

func sampleBatch() []byte {
	b := make([]byte, BatchHeaderLen)
	records := sampleRecords()
	PutBatchHeader(b, BatchHeader{Count: 2, Base: 501, AppendTime: 1767225599000123, Checksum: ExtendChecksum(0, records)})
	return append(b, records...)
}

func drawCode(t *rapid.T) core.Code {
	return rapid.OneOf(rapid.Just(core.CodeStale), rapid.Custom(func(t *rapid.T) core.Code {
		return core.Code(rapid.StringOfN(rapid.RuneFrom([]rune("abc_")), 0, MaxReasonCode, -1).Draw(t, "text"))
	})).Draw(t, "code")
}

func drawPublishAck(t *rapid.T) body {
	a := new(PublishAck)
	for range rapid.IntRange(0, 5).Draw(t, "n") {
		r := AckRun{First: uint64(drawSeq(t, "first")), Count: rapid.Uint32Range(1, 1<<31).Draw(t, "count")}
		if r.Status = AckStatus(rapid.IntRange(0, 2).Draw(t, "status")); r.Status == AckOK {
			r.Extent, r.Base = core.ExtentID{ID: drawID(t, "extent")}, drawSeq(t, "base")
		} else {
			r.Code = drawCode(t)
		}
		a.Runs = append(a.Runs, r)
	}
	return a
}

func drawSettled(t *rapid.T) body {
	s := &Settled{Handle: rapid.Uint32().Draw(t, "handle")}
	for range rapid.IntRange(0, 5).Draw(t, "n") {
		s.Runs = append(s.Runs, SeqRun{drawSeq(t, "base"), rapid.Uint32Range(1, 1<<31).Draw(t, "count"), rapid.Uint16().Draw(t, "attempt")})
	}
	return s
}

// drawEncoded makes one to three encoded records.
func drawEncoded(t *rapid.T) (b []byte) {
	for range rapid.IntRange(1, 3).Draw(t, "records") {
		var err error
		if b, err = AppendRecord(b, &Record{Payload: drawBytes(t, "payload", 50)}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func drawDeliver(t *rapid.T, tokens bool) body {
	d := &Deliver{Handle: rapid.Uint32().Draw(t, "handle"), Records: drawEncoded(t)}
	for b := d.Records; len(b) > 0; {
		d.Runs = append(d.Runs, DeliverRun{drawSeq(t, "base"), 1, rapid.Uint16().Draw(t, "attempt"), rapid.Int64().Draw(t, "enqueued")})
		if tokens {
			d.Tokens = AppendToken(d.Tokens, rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "token"))
		}
		_, b, _ = NextRecord(b)
	}
	return d
}

func TestBodies_DecodeReturnsWhatWasAppended(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			got := k.new() // reused, as its owner would
			rapid.Check(t, func(t *rapid.T) {
				want := k.draw(t)
				if err := got.Decode(want.Append(nil)); err != nil {
					t.Fatalf("Decode: %v", err)
				}
				if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("decoded body differs (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestBodies_RefuseOtherLengths(t *testing.T) {
	openEnded := map[string]bool{"publish": true, "append": true, "due": true, "due, and more": true} // the records' own lengths tell
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			var without []byte // what the body is without its tokens, which is a whole body, too
			if plain, ok := kinds[map[string]string{"deliver with tokens": "deliver", "handle with a token": "handle"}[name]]; ok {
				without = plain.sample.Append(nil)
			}
			whole := k.sample.Append(nil)
			for n := range whole {
				err := k.new().Decode(whole[:n])
				if err == nil && !openEnded[name] && !(without != nil && bytes.Equal(whole[:n], without)) {
					t.Errorf("body cut off after %d of %d bytes was accepted", n, len(whole))
				}
			}
			if err := k.new().Decode(append(whole, 0)); core.CodeOf(err) != core.CodeBadFrame && !openEnded[name] {
				t.Errorf("body with one byte too many: got %v, want %s", err, core.CodeBadFrame)
			}
		})
	}
}

func TestBodies_DecodeAllocatesNothing(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			encoded, into := k.sample.Append(nil), k.new()
			if n := testing.AllocsPerRun(100, func() {
				if err := into.Decode(encoded); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("Decode allocates %v times, want 0", n)
			}
		})
	}
}

func TestBodies_RefuseBadValues(t *testing.T) {
	records := sampleRecords()
	for name, test := range map[string]struct {
		into body
		bad  []byte
		want core.Code
	}{
		"publish from number 0":      {new(Publish), (&Publish{First: 0, Records: records}).Append(nil), core.CodeBadFrame},
		"publish of nothing":         {new(Publish), (&Publish{First: 1}).Append(nil), core.CodeBadFrame},
		"ack of no records":          {new(PublishAck), (&PublishAck{Runs: []AckRun{{First: 1, Base: 1}}}).Append(nil), core.CodeBadFrame},
		"ack past the last seq":      {new(PublishAck), (&PublishAck{Runs: []AckRun{{First: 1, Count: 2, Base: 1<<64 - 1}}}).Append(nil), core.CodeBadFrame},
		"ack with a newer status":    {new(PublishAck), (&PublishAck{Runs: []AckRun{{First: 1, Count: 2, Status: 3}}}).Append(nil), core.CodeVersion},
		"settlement of seq 0":        {new(Settled), (&Settled{Runs: []SeqRun{{Base: 0, Count: 1}}}).Append(nil), core.CodeBadFrame},
		"settlement of no seqs":      {new(Settled), (&Settled{Runs: []SeqRun{{Base: 1, Count: 0}}}).Append(nil), core.CodeBadFrame},
		"settlement of many runs":    {new(Settled), (&Settled{Runs: slices.Repeat([]SeqRun{{Base: 1, Count: 1}}, MaxSettledRuns+1)}).Append(nil), core.CodeTooLarge},
		"nack of seq 0":              {new(Nack), (&Nack{}).Append(nil), core.CodeBadFrame},
		"nack with long metadata":    {new(Nack), (&Nack{Seq: 1, Metadata: make([]byte, MaxAttributes+1)}).Append(nil), core.CodeTooLarge},
		"nack for ever":              {new(Nack), (&Nack{Seq: 1, DelayMillis: 1 << 62}).Append(nil), core.CodeBadArgument},
		"extend backwards":           {new(Extend), (&Extend{Seq: 1, Millis: -1}).Append(nil), core.CodeBadArgument},
		"deliver with more seqs":     {new(Deliver), (&Deliver{Runs: []DeliverRun{{Base: 1, Count: 1000}}, Records: records}).Append(nil), core.CodeBadFrame},
		"deliver with a token short": {new(Deliver), (&Deliver{Runs: sampleRuns, Records: records, Tokens: AppendToken(nil, []byte("t"))}).Append(nil), core.CodeBadFrame},
		"due of nothing":             {new(Due), (&Due{Records: records}).Append(nil), core.CodeBadFrame},
		"due of seq 0":               {new(Due), (&Due{Entries: []DueEntry{{Seq: 0}}, Records: records}).Append(nil), core.CodeBadFrame},
		"due with more seqs":         {new(Due), (&Due{Entries: make([]DueEntry, 100), Records: records}).Append(nil), core.CodeBadFrame},
		"due that claims 4 G":        {new(Due), []byte{255, 255, 255, 255, 0, 0, 0, 0}, core.CodeBadFrame},
		"settlement that claims 4 G": {new(Settled), []byte{0, 0, 0, 0, 255, 255, 255, 255}, core.CodeBadFrame},
		"ack that claims 4 G":        {new(PublishAck), []byte{255, 255, 255, 255}, core.CodeBadFrame},
	} {
		t.Run(name, func(t *testing.T) {
			if err := test.into.Decode(test.bad); core.CodeOf(err) != test.want {
				t.Errorf("Decode = %v, want %s", err, test.want)
			}
		})
	}
}

func TestNack_AppendCutsTheReason(t *testing.T) {
	var got Nack
	long := bytes.Repeat([]byte("ü"), MaxReason) // 2 bytes each
	if err := got.Decode((&Nack{Seq: 1, Reason: append([]byte("x"), long...)}).Append(nil)); err != nil {
		t.Fatal(err)
	}
	if want := MaxReason - 1; len(got.Reason) != want || !bytes.HasSuffix(got.Reason, []byte("ü")) {
		t.Errorf("reason was cut to %d bytes, want %d, at a whole character", len(got.Reason), want)
	}
}
