package core_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"testing"

	"github.com/columbamq/columba/core"
)

func TestErrorf(t *testing.T) {
	err := core.Errorf(core.CodeUnavailable, "open extent %d: %w", 7, io.ErrUnexpectedEOF)
	if err.Error() != "open extent 7: unexpected EOF" {
		t.Errorf("got %q", err.Error())
	}
	wrapped := fmt.Errorf("seal: %w", err)
	if !errors.Is(wrapped, io.ErrUnexpectedEOF) || !errors.Is(wrapped, core.ErrUnavailable) || errors.Is(wrapped, core.ErrStale) {
		t.Error("a wrap hides the cause, or the code")
	}
	var e *core.Error
	if !errors.As(wrapped, &e) || e.Code != core.CodeUnavailable {
		t.Errorf("got %+v", e)
	}
	both := core.Errorf(core.CodeInternal, "%w, and then: %w", io.ErrUnexpectedEOF, os.ErrClosed)
	if !errors.Is(both, io.ErrUnexpectedEOF) || !errors.Is(both, os.ErrClosed) || both.Error() != "unexpected EOF, and then: file already closed" {
		t.Errorf("one of two causes is hidden: %v", both)
	}
	plain := core.Errorf(core.CodeStale, "too late by %d", 3)
	if plain.Error() != "too late by 3" || plain.Unwrap() != nil || !errors.Is(plain, core.ErrStale) {
		t.Errorf("got %q", plain)
	}
}

func TestError_Text(t *testing.T) {
	for want, err := range map[string]*core.Error{
		"a":      {Text: "a"},
		"EOF":    {Err: io.EOF},
		"a: EOF": {Text: "a", Err: io.EOF},
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err.Error(), want)
		}
	}
}

func TestCodeOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want core.Code
	}{
		{nil, ""},
		{io.EOF, core.CodeInternal},
		{context.Canceled, core.CodeInternal},
		{core.ErrMoved, core.CodeMoved},
		{fmt.Errorf("x: %w", core.Errorf(core.CodeNoSpace, "y: %w", core.ErrFenced)), core.CodeNoSpace},
	} {
		if got := core.CodeOf(c.err); got != c.want {
			t.Errorf("%v: got %q, want %q", c.err, got, c.want)
		}
	}
}

// Every code declared in the catalogue's source has a class and an exit code of its own choosing.
func TestCodes_AllListed(t *testing.T) {
	src, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`Code\w+\s+Code = "(\w+)"`).FindAllSubmatch(src, -1)
	if len(declared) < 30 {
		t.Fatalf("found %d codes", len(declared))
	}
	seen := map[string]bool{}
	for _, d := range declared {
		code := string(d[1])
		if seen[code] {
			t.Errorf("%s stands for two codes", code)
		}
		seen[code] = true
		if exit := core.Code(code).Exit(); exit < core.ExitFailed || exit > core.ExitUnavailable {
			t.Errorf("%s: exit code %d", code, exit)
		}
	}
	for _, c := range []struct {
		code  core.Code
		class core.Class
		text  string
		exit  int
	}{
		{core.CodeThrottled, core.ClassThrottled, "throttled", core.ExitUnavailable},
		{core.CodeUnknown, core.ClassUnknown, "unknown_outcome", core.ExitUnavailable},
		{core.CodeDeadline, core.ClassUnknown, "unknown_outcome", core.ExitUnavailable},
		{core.CodeFenced, core.ClassRetryable, "retryable", core.ExitFailed},
		{core.CodeNotFound, core.ClassFatal, "fatal", core.ExitNotFound},
		{"from_the_future", core.ClassFatal, "fatal", core.ExitFailed},
	} {
		if c.code.Class() != c.class || c.code.Class().String() != c.text || c.code.Exit() != c.exit {
			t.Errorf("%s: got %s, exit %d", c.code, c.code.Class(), c.code.Exit())
		}
	}
}
