package sabotage

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// Check is tests of one package, one of which has to fail when the code is broken.
type Check struct {
	Package string   // from the module's root
	Run     string   // the pattern of -run
	Args    []string // flags of these tests
	Sign    string   // a pattern of what the failure has to say; "" for any
}

func (c Check) String() string { return c.Package + " " + c.Run }

// limit of one run of a check, compiling included.
const limit = 5 * time.Minute

// Verdict is what a check said about one build.
type Verdict struct {
	Caught bool   // a test failed
	Test   string // the first one that did
	Says   string // the first thing it said
	Output string // all of it
}

var (
	failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	said   = regexp.MustCompile(`(?m)^\s+\w+\.go:\d+: (.*)$`)
)

// Try runs a check on the sources as an overlay makes them, or as they are when it is "". It is an error when nothing
// was tested: the build failed, no test matched, or the time was up.
func (c Check) Try(ctx context.Context, root, overlay string) (Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := append([]string{"test", "-timeout", limit.String(), "-run", c.Run, "./" + c.Package}, c.Args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = os.Environ()
	if overlay != "" {
		// By the environment, so that a test that builds the program builds the sabotaged one.
		cmd.Env = append(cmd.Env, strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	v := Verdict{Output: out.String()}
	switch m := failed.FindStringSubmatch(v.Output); {
	case ctx.Err() != nil:
		return v, fmt.Errorf("%s: no end after %s", c, limit)
	case err == nil && strings.Contains(v.Output, "[no tests to run]"):
		return v, fmt.Errorf("%s: no such test", c)
	case err == nil:
		return v, nil
	case m == nil:
		return v, fmt.Errorf("%s: nothing was tested: %w\n%.2000s", c, err, v.Output)
	case !regexp.MustCompile(c.Sign).MatchString(v.Output):
		return v, nil // it fails for another reason
	default:
		v.Caught, v.Test = true, m[1]
		v.Says = says(v.Output, c.Sign)
		return v, nil
	}
}

// says is the first message of a failed test, in one line, or the one with the sign.
func says(output, sign string) string {
	text, signs := "", regexp.MustCompile(sign)
	for line := range strings.Lines(output) {
		if sign != "" && signs.MatchString(line) {
			return shortened(strings.TrimSpace(line))
		}
	}
	for _, m := range said.FindAllStringSubmatch(output, -1) {
		if text = m[1]; !strings.HasPrefix(text, "seed ") {
			break
		}
	}
	if i := strings.Index(output, "\npanic: "); text == "" && i >= 0 {
		text, _, _ = strings.Cut(output[i+1:], "\n")
	}
	return shortened(text)
}

func shortened(text string) string {
	if len(text) > 110 {
		text = text[:107] + "…"
	}
	return text
}
