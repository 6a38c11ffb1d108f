package cli

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// steers reports whether a terminal may obey a character, or hide it, instead of showing it: controls, format
// characters like U+202E, line and paragraph separators, tags, and what is no character at all. Ordinary spaces and
// everything that has a shape is shown as it is.
func steers(r rune) bool {
	switch {
	case r < utf8.RuneSelf:
		return r < ' ' || r == 0x7f
	case r&0xfffe == 0xfffe, r >= 0xfdd0 && r <= 0xfdef:
		return true // no characters, by Unicode
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// printable replaces what could steer a terminal or break a line, for tables and for talk.
func printable(s string) string {
	replace := func(r rune) bool { return r == unicode.ReplacementChar || steers(r) }
	if strings.IndexFunc(s, replace) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case replace(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// printableLines replaces what could steer a terminal in text that keeps its line ends and tabs. Bytes that are no
// UTF-8 count: some terminals obey them.
func printableLines(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case steersInLines(r):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:n]...)
		}
		text = text[n:]
	}
	return out
}

// printableJSON escapes in JSON text, whose strings alone can have such characters, what could steer a terminal. It
// means the same.
func printableJSON(text []byte) []byte {
	return escape(text, func(b []byte, r rune) []byte {
		for _, unit := range utf16.Encode([]rune{r}) {
			b = fmt.Appendf(b, `\u%04x`, unit)
		}
		return b
	})
}

// printableYAML does the same in YAML, where such characters are in double-quoted scalars alone: see blockStyle.
func printableYAML(text []byte) []byte {
	return escape(text, func(b []byte, r rune) []byte { return fmt.Appendf(b, `\U%08x`, r) })
}

// steersInLines is steers, but for what divides and indents lines of text.
func steersInLines(r rune) bool { return r != '\n' && r != '\t' && steers(r) }

// escape replaces what could steer a terminal, but line ends and tabs, by what as appends. It returns text itself when
// there is none.
func escape(text []byte, as func(b []byte, r rune) []byte) []byte {
	var out []byte
	from := 0 // of what was not copied yet
	for i := 0; i < len(text); {
		r, n := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(text[i:])
		}
		if steersInLines(r) {
			out = as(append(out, text[from:i]...), r)
			from = i + n
		}
		i += n
	}
	if from == 0 {
		return text
	}
	return append(out, text[from:]...)
}

// yamlOfJSON is JSON text as the YAML library reads it: pairs of surrogates, which YAML does not have, become one
// escape.
func yamlOfJSON(text []byte) []byte {
	if !bytes.Contains(text, []byte(`\ud`)) {
		return text
	}
	var out []byte
	for i := 0; i < len(text); {
		if text[i] != '\\' || i+1 == len(text) {
			out = append(out, text[i])
			i++
			continue
		}
		high, low := unit(text[i:]), rune(-1)
		if utf16.IsSurrogate(high) {
			low = unit(text[i+6:])
		}
		if r := utf16.DecodeRune(high, low); r != unicode.ReplacementChar {
			out = fmt.Appendf(out, `\U%08x`, r)
			i += 12
			continue
		}
		out = append(out, text[i:i+2]...) // an escaped backslash is through, too
		i += 2
	}
	return out
}

// unit is the UTF-16 unit of an escape that text begins with; -1 when it begins with none.
func unit(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}
