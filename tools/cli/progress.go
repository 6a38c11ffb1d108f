package cli

import (
	"os"
	"sync"

	"github.com/cheggaaa/pb/v3"
	"golang.org/x/term"
)

// progress is a bar on stderr for what can take longer than two seconds; nothing is drawn unless stderr is a terminal.
type progress struct {
	bar *pb.ProgressBar
	end sync.Once
}

// progress starts a bar that counts what; total 0 means it is not known.
func (a *app) progress(what string, total int) *progress {
	if !isTerminal(a.stderr) {
		return &progress{}
	}
	tmpl := `{{string . "what"}} {{counters . }} {{bar . }} {{percent . }} {{speed . "%s/s" }} {{rtime . "ETA %s"}}`
	if total == 0 {
		tmpl = `{{string . "what"}} {{counters . }} {{cycle . "⠋" "⠙" "⠸" "⠴" "⠦" "⠇" }} {{speed . "%s/s" }} {{etime . }}`
	}
	bar := pb.ProgressBarTemplate(tmpl).New(total).SetWriter(a.stderr)
	bar.Set("what", what)
	return &progress{bar: bar.Start()}
}

// byteProgress starts a bar that counts bytes; total 0 means it is not known.
func (a *app) byteProgress(what string, total int64) *progress {
	p := a.progress(what, int(total))
	if p.bar != nil {
		p.bar.Set(pb.Bytes, true)
	}
	return p
}

// add counts n more. Safe for concurrent use.
func (p *progress) add(n int) {
	if p.bar != nil {
		p.bar.Add(n)
	}
}

// finish draws the bar for the last time; calls after the first do nothing.
func (p *progress) finish() {
	if p.bar != nil {
		p.end.Do(func() { p.bar.Finish() })
	}
}

func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
