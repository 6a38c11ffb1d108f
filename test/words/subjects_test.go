package words

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sentence is a part of a text with the mark that ends it.
var sentence = regexp.MustCompile(`[^.:;?!]+[.:;?!]*`)

// riddle is the beginning of a sentence whose subject is a clause: the reader cannot know which kind of thing it is
// about.
var riddle = regexp.MustCompile(`^(?:What|Whatever|Who|Whoever|That which|Those that|Those who|That an?|That the)\s`)

// riddles are the sentences of a text that begin with a clause as their subject. Questions are none.
func riddles(text string) (out []string) {
	for _, s := range sentence.FindAllString(text, -1) {
		s = strings.TrimLeft(s, " *–(")
		if riddle.MatchString(s) && !strings.HasSuffix(s, "?") {
			out = append(out, strings.TrimRight(s, ".:;! "))
		}
	}
	return out
}

var (
	commentLine = regexp.MustCompile(`^\s*// (\S.*)$`)
	codeSpan    = regexp.MustCompile("`[^`]*`")
)

// paragraphs of the comments of Go source, without preformatted lines. Comments behind code are phrases, not sentences.
func paragraphs(source string) (out []string) {
	var text []string
	end := func() {
		if len(text) > 0 {
			out = append(out, strings.Join(text, " "))
		}
		text = nil
	}
	for line := range strings.Lines(source) {
		if m := commentLine.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			text = append(text, m[1])
			continue
		}
		end()
	}
	end()
	return out
}

// prose are the paragraphs, headings, list items and cells of a Markdown page, without code.
func prose(page string) (out []string) {
	code, text := false, ""
	end := func() {
		if text != "" {
			out = append(out, codeSpan.ReplaceAllString(text, "x"))
		}
		text = ""
	}
	for line := range strings.Lines(page) {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			end()
			code = !code
		case code:
		case trimmed == "":
			end()
		case strings.HasPrefix(trimmed, "|"):
			end()
			for _, cell := range strings.Split(codeSpan.ReplaceAllString(trimmed, "x"), "|") {
				out = append(out, strings.TrimSpace(cell))
			}
		case strings.HasPrefix(trimmed, "#"), listItem.MatchString(line):
			end()
			text = strings.Trim(listItem.ReplaceAllString(trimmed, ""), "#* ")
			if strings.HasPrefix(trimmed, "#") {
				end()
			}
		default:
			text = strings.TrimLeft(strings.TrimSpace(text+" "+trimmed), "*")
		}
	}
	end()
	return out
}

// kept are texts that keep their sentences: decisions and history are records of their time, and pages of results and
// models are named by the runs that made them.
func kept(path string) bool {
	return path == "CHANGELOG.md" || strings.HasPrefix(path, "docs/adr/") || strings.HasPrefix(path, "bench/results/")
}

// TestProse_HasNounsAsSubjects: no comment and no page has a sentence that begins with "What …", "Who …" or "That …" as
// its subject.
func TestProse_HasNounsAsSubjects(t *testing.T) {
	checked := 0
	everyFile(t, func(path string) {
		var texts []string
		switch {
		case kept(path):
		case strings.HasSuffix(path, ".md"):
			texts = prose(read(t, path))
		case strings.HasSuffix(path, ".proto"), isSource(path):
			texts = paragraphs(read(t, path))
		}
		for _, text := range texts {
			checked++
			for _, x := range riddles(text) {
				t.Errorf("%s: name the subject of: %s", path, x)
			}
		}
	})
	if checked < 5000 {
		t.Errorf("%d paragraphs", checked)
	}

	t.Run("made-up texts", func(t *testing.T) {
		page := "# What is kept\nWhat comes first? Who holds it\nis `What is` asked.\n* That a store is gone ends it.\n* **Who pays.** Nobody.\n| what | Those that wait go |\n```\nWhat is code\n```\nThat is a noun. That store too.\n"
		var got []string
		for _, text := range prose(page) {
			got = append(got, riddles(text)...)
		}
		if want := []string{"What is kept", "Who holds it is x asked", "That a store is gone ends it", "Who pays", "Those that wait go"}; !slices.Equal(got, want) {
			t.Errorf("riddles are %q", got)
		}
		source := "// x is fine. What it takes\n// it keeps.\nvar x = 1 // What is behind code.\n//\tWhat is code\n// Which one? Whatever comes: that is one.\n"
		got = nil
		for _, text := range paragraphs(source) {
			got = append(got, riddles(text)...)
		}
		if want := []string{"What it takes it keeps", "Whatever comes"}; !slices.Equal(got, want) {
			t.Errorf("riddles are %q", got)
		}
	})
}
