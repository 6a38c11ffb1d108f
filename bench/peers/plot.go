package main

import (
	"fmt"
	"html"
	"strings"
)

// Sizes of the plot, in its own units.
const (
	panelWide  = 460
	barHigh    = 20
	labelWide  = 150
	valueWide  = 60
	panelHead  = 30
	panelSpace = 24
	plotMargin = 16
)

// colours of brokers by the kind; a setting that does not sync before it acknowledges is paler.
var colours = map[string]string{"columba": "#0072b2", "nats": "#009e73", "kafka": "#d55e00", "rabbitmq": "#cc79a7"}

// plot is a page of panels, one for each figure. A bar is a median; the line upon it is the range of the rounds.
func (r *record) plot() string {
	all := r.figures()
	high := panelHead + barHigh*len(r.Plan.Brokers) + panelSpace
	lines := (len(all) + 1) / 2
	wide, tall := 2*panelWide+3*plotMargin, lines*high+plotMargin
	var b strings.Builder
	draw := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	draw(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img"`, wide, tall)
	draw(`  font-family="sans-serif" font-size="12">`)
	draw(`<title>Columba and other brokers</title>`)
	draw(`<rect width="%d" height="%d" fill="#fff"/>`, wide, tall)
	for i, f := range all {
		r.panel(draw, f, plotMargin+i%2*(panelWide+plotMargin), plotMargin+i/2*high)
	}
	draw("</svg>")
	return b.String()
}

func (r *record) panel(draw func(format string, args ...any), f figure, x, y int) {
	better := "less is better"
	if f.higher {
		better = "more is better"
	}
	draw(`<text x="%d" y="%d" font-weight="bold">%s</text>`, x, y+14, html.EscapeString(f.name))
	draw(`<text x="%d" y="%d" text-anchor="end" fill="#666">%s, %s</text>`, x+panelWide, y+14, f.unit, better)
	most := 0.0
	for _, name := range r.Plan.Brokers {
		most = max(most, r.figure(name, f).Most)
	}
	if most == 0 {
		return
	}
	at := func(v float64) float64 { return v / most * (panelWide - labelWide - valueWide) }
	for i, name := range r.Plan.Brokers {
		broker, _ := brokerOf(name)
		s := r.figure(name, f)
		top := y + panelHead + i*barHigh
		opacity := 1.0
		if !broker.durable {
			opacity = 0.45
		}
		left, middle := float64(x+labelWide), top+barHigh/2
		draw(`<text x="%d" y="%d" text-anchor="end">%s</text>`, x+labelWide-6, top+14, html.EscapeString(broker.title))
		if s.Of == 0 {
			why := "not measured"
			if s.Failed > 0 {
				why = "failed"
			}
			draw(`<text x="%g" y="%d" fill="#666">%s</text>`, left, top+14, why)
			continue
		}
		draw(`<rect x="%g" y="%d" width="%.1f" height="%d" fill="%s" opacity="%g"/>`,
			left, top+3, at(s.Median), barHigh-6, colours[broker.kind], opacity)
		draw(`<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#000" stroke-width="2"/>`,
			left+at(s.Least), left+at(s.Most), middle, middle)
		draw(`<text x="%.1f" y="%d">%s</text>`, left+at(s.Most)+5, top+14, number(s.Median))
	}
}
