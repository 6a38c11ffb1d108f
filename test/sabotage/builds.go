package sabotage

// Build is one way to break the code, and the checks of which every one has to notice.
type Build struct {
	Name   string
	Means  string // what goes wrong with it
	Edits  []Edit
	Checks []Check
	Quick  bool // cheap enough for every run of the tests
}

// Builds are the sabotaged builds.
var Builds = []Build{
	{
		Name: "ack before fsync", Means: "a store acknowledges what is not on its disk yet",
		Edits: []Edit{
			{"storehost/extentlog/journal.go", "if err := j.ring.Sync(g.written); err != nil {", "if err := j.e.refusing(); err != nil {"},
		},
		Checks: []Check{
			{Package: "storehost/extentlog", Run: "^TestEngine_Crash$"},
			{ // in some of these schedules all stores of an extent lose power
				Package: "test/cluster", Run: "^TestSeeds$", Args: []string{"-first=8001", "-many=60", "-steps=8"},
				Sign: "stuck: [1-9][0-9]* deliveries of acknowledged messages are missing|where another message or nothing is",
			},
		},
	},
	{
		Name: "fence not persisted", Means: "a store that restarts takes appends to an extent it had fenced",
		Edits: []Edit{{
			"storehost/extentlog/control.go",
			"if err := e.stageExhumation(g, ext.ID); err != nil {\n\t\t\treturn err\n\t\t}\n\t\treturn e.stageRow(g, x)\n\t}})\n\tif err != nil {\n\t\treturn State{}, err\n\t}\n\treturn after, nil",
			"g.touch(x)\n\t\treturn nil\n\t}})\n\tif err != nil {\n\t\treturn State{}, err\n\t}\n\treturn after, nil",
		}},
		Checks: []Check{{Package: "storehost/extentlog", Run: "^TestEngine_(Conformance|Crash)$"}},
	},
	{
		Name: "L = min", Means: "an extent ends where its shortest replica does",
		Edits: []Edit{{
			"core/seal/seal.go",
			"\t\tfor _, r := range counting {\n\t\t\tl = max(l, r.Last)\n\t\t}",
			"\t\tl = counting[0].Last\n\t\tfor _, r := range counting {\n\t\t\tl = min(l, r.Last)\n\t\t}",
		}},
		Checks: []Check{{Package: "core/seal", Run: "^TestDecide"}},
		Quick:  true,
	},
	{
		Name: "reads not gated", Means: "consumers read what is not committed and may vanish",
		Edits:  []Edit{{"storehost/read.go", "return min(s.Committed, s.Last)", "return s.Last"}},
		Checks: []Check{{Package: "storehost", Run: "^TestRead_NeverBeyondCommitted$"}},
	},
	{
		Name: "in-flight dropped on close", Means: "an extent is closed without waiting for what was sent to its replicas",
		Edits: []Edit{{
			"inputhost/writer/writer.go",
			"w.mu.state != closing || len(w.mu.pending) > 0 || len(w.mu.inFlight) > 0 ||", "w.mu.state != closing || len(w.mu.pending) > 0 ||",
		}},
		Checks: []Check{{Package: "inputhost/writer", Run: "^TestWriter_CloseFinishesWhatWasTaken$"}},
		Quick:  true,
	},
	{
		Name: "suspect counted", Means: "a suspect replica, such as one on another disk, counts when the end of an extent is decided",
		Edits: []Edit{{
			"core/seal/grade.go",
			"case a.Committed > a.Last && !(a.Sealed && a.Committed <= a.L):\n\t\t\tv.suspect = append(v.suspect, h)",
			"case a.Committed > a.Last && !(a.Sealed && a.Committed <= a.L):\n\t\t\tv.anyOK = true\n\t\t\tv.usable = append(v.usable, reply{h, false, a})",
		}},
		Checks: []Check{{Package: "core/seal", Run: "^TestDecide"}},
		Quick:  true,
	},
	{
		Name: "CRC skipped", Means: "damaged records are taken, kept and handed out",
		Edits: []Edit{
			{"wire/record_decode.go", "binary.LittleEndian.Uint32(b[4:]) != recordCRC(b)", "false"},
			{"wire/record_walk.go", " || binary.LittleEndian.Uint32(b[4:]) != recordCRC(b[:n])", ""},
		},
		Checks: []Check{
			{Package: "wire", Run: "^TestDecodeRecord_RefusesEveryMutatedBit$"},
			{Package: "storehost", Run: "^TestAppend_DamagedNeverStored$"},
		},
	},
}
