package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Output formats.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

// field is one named value of something shown. Names are stable and snake_case, the same in every format.
type field struct {
	name   string
	value  any  // string, number, bool, []string, map[string]string or nil
	detail bool // left out of list tables
}

// tableBatch rows share their column widths; later batches keep to the widths of earlier ones where they can.
const tableBatch = 1000

// printer writes items in the chosen format. Not safe for concurrent use.
type printer struct {
	w      io.Writer
	format string
	items  int
	widths []int
	rows   [][]string
	err    error

	width  int      // of the terminal that a table of less than tableBatch rows has to fit; 0: any
	narrow []string // columns that may be left out for that, the first one first

	dropped int       // columns that were left out
	note    func(int) // says so at the end of the table; nil: nobody does
}

func (a *app) printer() *printer { return &printer{w: a.stdout, format: a.format} }

// fitted is a printer whose tables fit the terminal, if stdout is one: it leaves out the columns narrow, the first one
// first, and says how many.
func (a *app) fitted(narrow ...string) *printer {
	p := a.printer()
	p.fit(a.width(a.stdout), narrow)
	p.note = func(n int) {
		// A table that is drawn again has the hint below it each time on a terminal, and once elsewhere.
		if drawn := a.width(a.stderr) > 0; drawn || !a.hinted {
			a.say("+%s: -o json", plural(n, "column"))
		}
		a.hinted = true
	}
	return p
}

// object prints one thing by itself: a table of names and values, a JSON object, or a YAML mapping.
func (p *printer) object(fields []field) error {
	switch p.format {
	case formatJSON:
		p.write(append(encode(fields), '\n'))
	case formatYAML:
		p.yaml(encode(fields))
	default:
		width := 0
		for _, f := range fields {
			width = max(width, len(f.name))
		}
		var b bytes.Buffer
		for _, f := range fields {
			fmt.Fprintf(&b, "%-*s  %s\n", width, f.name, cell(f.value))
		}
		p.write(b.Bytes())
	}
	return p.err
}

// item prints one element of a list or stream: a table row, a JSON line, or an element of a YAML sequence.
func (p *printer) item(fields []field) error {
	p.items++
	switch p.format {
	case formatJSON:
		p.write(append(encode(fields), '\n'))
	case formatYAML:
		p.yaml([]byte("[" + string(encode(fields)) + "]"))
	default:
		if p.items == 1 {
			p.rows = append(p.rows, row(fields, func(f field) string { return strings.ToUpper(f.name) }))
		}
		p.rows = append(p.rows, row(fields, func(f field) string { return cell(f.value) }))
		if len(p.rows) >= tableBatch {
			p.flush()
		}
	}
	return p.err
}

// close ends a list: it writes what a table still holds.
func (p *printer) close() error {
	p.flush()
	if p.dropped > 0 && p.note != nil {
		p.note(p.dropped)
	}
	if p.items == 0 && p.format == formatYAML {
		p.write([]byte("[]\n"))
	}
	return p.err
}

// fit has a table leave out columns where it is wider than a terminal.
func (p *printer) fit(width int, narrow []string) { p.width, p.narrow = width, narrow }

// dropColumns takes columns out of the rows until they fit. The first column goes only if it is the same in all rows.
func (p *printer) dropColumns() {
	if p.width == 0 || len(p.rows) == 0 || len(p.rows) <= p.items { // a later batch has no names of columns
		return
	}
	for _, name := range p.narrow {
		total, at := 0, -1
		same := true
		for i, title := range p.rows[0] {
			widest := 0
			for _, r := range p.rows {
				widest = max(widest, utf8.RuneCountInString(r[i]))
			}
			total += widest + 2
			if title == name {
				at = i
			}
		}
		if total-2 <= p.width {
			return
		}
		for _, r := range p.rows[1:] {
			same = same && at >= 0 && r[at] == p.rows[1][at]
		}
		if at < 0 || at == 0 && !same {
			continue
		}
		p.dropped++
		for i, r := range p.rows {
			p.rows[i] = slices.Delete(r, at, at+1)
		}
	}
}

// flush writes the rows gathered so far.
func (p *printer) flush() {
	p.dropColumns()
	for _, r := range p.rows {
		for i, c := range r {
			if i == len(p.widths) {
				p.widths = append(p.widths, 0)
			}
			p.widths[i] = max(p.widths[i], utf8.RuneCountInString(c))
		}
	}
	var b bytes.Buffer
	for _, r := range p.rows {
		for i, c := range r {
			b.WriteString(c)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", p.widths[i]-utf8.RuneCountInString(c)+2))
			}
		}
		b.WriteByte('\n')
	}
	p.rows = p.rows[:0]
	p.write(b.Bytes())
}

func (p *printer) write(b []byte) {
	if p.err == nil && len(b) > 0 {
		_, p.err = p.w.Write(b)
	}
}

// yaml prints JSON text, which is YAML too, in block style.
func (p *printer) yaml(text []byte) {
	var node yaml.Node
	if err := yaml.Unmarshal(yamlOfJSON(text), &node); err != nil {
		p.err = err
		return
	}
	blockStyle(&node)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&node); err != nil {
		p.err = err
		return
	}
	p.write(printableYAML(b.Bytes()))
}

// blockStyle drops the style of JSON. Scalars with characters that could steer a terminal are quoted.
func blockStyle(n *yaml.Node) {
	if len(n.Content) > 0 || n.Kind == yaml.ScalarNode {
		n.Style = 0
	}
	if n.Kind == yaml.ScalarNode && strings.IndexFunc(n.Value, steersInLines) >= 0 {
		n.Style = yaml.DoubleQuotedStyle // where they can be escaped
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}

func row(fields []field, text func(field) string) []string {
	var out []string
	for _, f := range fields {
		if !f.detail {
			out = append(out, text(f))
		}
	}
	return out
}

// encode is the JSON object of fields, in their order.
func encode(fields []field) []byte {
	b := []byte{'{'}
	for i, f := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendQuote(b, f.name)
		b = append(b, ':')
		b = appendJSON(b, f.value)
	}
	return append(b, '}')
}

// appendJSON encodes a value without escaping <, > and &.
func appendJSON(b []byte, v any) []byte {
	if list, ok := v.([]string); ok && list == nil {
		return append(b, "[]"...)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("output field of type %T: %v", v, err)) // fields hold plain values only
	}
	return append(b, printableJSON(bytes.TrimSuffix(buf.Bytes(), []byte{'\n'}))...)
}

// cell is a value as it stands in a table.
func cell(v any) string {
	text := ""
	switch v := v.(type) {
	case nil:
	case []string:
		text = strings.Join(v, ",")
	case map[string]string:
		pairs := make([]string, 0, len(v))
		for k, s := range v {
			pairs = append(pairs, k+"="+s)
		}
		sort.Strings(pairs)
		text = strings.Join(pairs, ",")
	default:
		text = fmt.Sprint(v)
	}
	if text == "" {
		return "-"
	}
	return printable(text)
}
