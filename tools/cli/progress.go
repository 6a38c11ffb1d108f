package cli

import (
	"os"
	"sync"

	"golang.org/x/term"

	"github.com/columbamq/columba/tools/cli/bar"
)

// progress is a bar on stderr for what can take longer than two seconds; nothing is drawn unless stderr is a terminal.
type progress struct {
	begin func() *bar.Bar // nil: nothing is drawn
	first sync.Once
	bar   *bar.Bar // since first
	end   sync.Once
}

// progress starts a bar that counts what; total 0 means it is not known.
func (a *app) progress(what string, total int) *progress {
	p := a.newProgress(what, total, false)
	p.start()
	return p
}

// byteProgress is a bar that counts bytes, from the first on; total 0 means it is not known.
func (a *app) byteProgress(what string, total int64) *progress {
	return a.newProgress(what, int(total), true)
}

func (a *app) newProgress(what string, total int, bytes bool) *progress {
	if !isTerminal(a.stderr) {
		return &progress{}
	}
	o := bar.Options{Out: a.stderr, Width: func() int { return columns(a.stderr) }, What: what, Total: int64(total), Bytes: bytes}
	return &progress{begin: func() *bar.Bar { return bar.Start(o) }}
}

func (p *progress) start() {
	p.first.Do(func() {
		if p.begin != nil {
			p.bar = p.begin()
		}
	})
}

// add counts n more. Safe for concurrent use.
func (p *progress) add(n int) {
	p.start()
	if p.bar != nil {
		p.bar.Add(n)
	}
}

// above prints a line, and the bar below it from then on.
func (p *progress) above(a *app, text string) {
	if p.bar == nil {
		a.say("%s", text)
		return
	}
	p.bar.Above(printable(text))
}

// finish draws the bar for the last time; calls after the first do nothing, and a bar that was not begun never is.
func (p *progress) finish() {
	p.first.Do(func() {})
	if p.bar != nil {
		p.end.Do(func() { p.bar.Finish() })
	}
}

func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// columns is the width of a terminal, or 0.
func columns(v any) int {
	if f, ok := v.(*os.File); ok {
		width, _, _ := term.GetSize(int(f.Fd()))
		return width
	}
	return 0
}
