package core_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

func TestParseQueuePath(t *testing.T) {
	long := strings.Repeat("a", core.MaxLabel)
	for _, path := range []string{"/a/b", "/a/b/c/d/e", "/A0/x_.-y", "/" + long + "/" + long, "/a/b.dl", "/a/dlq"} {
		if got, err := core.ParseQueuePath(path); err != nil || got != path {
			t.Errorf("%q: got %q, %v", path, got, err)
		}
	}
	for _, path := range []string{
		"", "/", "a/b", "/x", "/a/", "//a", "/a//b", "/../x", "/a/..", "/a/.b", "/a/-b", "/a/b c", "/a/b\x00", "/a/\n", "/a/é",
		"/a/b/c/d/e/f", "/a/" + long + "a", "/a/" + strings.Repeat("x", 300), "/a/b.dlq", "/a/b.retry", "/b.dlq/c", "/a/b/", "/a/b?c",
	} {
		if _, err := core.ParseQueuePath(path); core.CodeOf(err) != core.CodeBadName {
			t.Errorf("%q: got %v, want %s", path, err, core.CodeBadName)
		}
	}
}

// TestParse_SaysWhatIsEmpty: a request holds several names.
func TestParse_SaysWhatIsEmpty(t *testing.T) {
	_, group := core.ParseGroupName("")
	_, host := core.ParseHostID("")
	_, namespace := core.ParseNamespace("/")
	_, path := core.ParseQueuePath("/orders/.dlq")
	for what, err := range map[string]error{"group name": group, "host id": host, "label of the namespace": namespace, "label of a queue path": path} {
		if core.CodeOf(err) != core.CodeBadName || !strings.Contains(err.Error(), "the "+what+" is empty") {
			t.Errorf("%s: %v, want %q that says what is empty", what, err, core.CodeBadName)
		}
	}
}

// TestParseQueuePath_SaysWhichSlash: a path of many labels does not say by itself which of them is empty.
func TestParseQueuePath_SaysWhichSlash(t *testing.T) {
	for _, path := range []string{"/a/b/", "/a//b"} {
		if _, err := core.ParseQueuePath(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: got %v, want an error that names the path", path, err)
		}
	}
}

func TestParseAnyQueuePath(t *testing.T) {
	for _, path := range []string{"/a/b", "/a/b/g.dlq", "/a/b/g.retry", "/a/b/c/d/e/g.dlq", "/a/b/c/d/e/g.dlq/h.retry"} {
		if got, err := core.ParseAnyQueuePath(path); err != nil || got != path {
			t.Errorf("%q: got %q, %v", path, got, err)
		}
	}
	for _, path := range []string{"/a/g.dlq", "/a/b.dlq/g.dlq", "/a/b/c/d/e/f/g.dlq", "/a/b/.dlq", "g.dlq", "/a/b/c/d/e/f",
		"/a/b/g.retry/h.retry", "/a/b/g.dlq/h.retry/i.retry", "/a/b/g.retry/h.dlq"} {
		if _, err := core.ParseAnyQueuePath(path); core.CodeOf(err) != core.CodeBadName {
			t.Errorf("%q: got %v, want %s", path, err, core.CodeBadName)
		}
	}
}

// A path comes from anybody, in a request of any length.
func TestParseAnyQueuePath_TakesNoTimeForManyLabels(t *testing.T) {
	for _, label := range []string{"/g.retry", "/g.dlq", "/g"} {
		began := time.Now()
		if _, err := core.ParseAnyQueuePath("/a/b" + strings.Repeat(label, 20_000)); core.CodeOf(err) != core.CodeBadName {
			t.Errorf("%s: got %v", label, err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s: refused after %s", label, took)
		}
	}
}

func TestDLQPath(t *testing.T) {
	path := core.DLQPath("/a/b", "g")
	if q, g, ok := core.SplitDLQPath(path); path != "/a/b/g.dlq" || q != "/a/b" || g != "g" || !ok {
		t.Errorf("%q splits into %q, %q, %v", path, q, g, ok)
	}
	for _, p := range []string{"/a/b/g", "g.dlq", "/g.dlq", ""} {
		if _, _, ok := core.SplitDLQPath(p); ok {
			t.Errorf("%q is taken for a dead letter queue", p)
		}
	}
}

func TestNames(t *testing.T) {
	for _, bad := range []string{"", "a/b", "-a", "g.dlq", "g.retry", strings.Repeat("g", core.MaxLabel+1)} {
		if _, err := core.ParseGroupName(bad); core.CodeOf(err) != core.CodeBadName {
			t.Errorf("group %q: got %v", bad, err)
		}
	}
	if g, err := core.ParseGroupName("hash-2"); g != "hash-2" || err != nil {
		t.Errorf("got %q, %v", g, err)
	}
	if h, err := core.ParseHostID("store-1.local"); h != "store-1.local" || err != nil {
		t.Errorf("got %q, %v", h, err)
	}
	if _, err := core.ParseHostID("a b"); core.CodeOf(err) != core.CodeBadName {
		t.Errorf("got %v", err)
	}
	if got := core.Namespace("/team/q/x"); got != "/team" {
		t.Errorf("got %q", got)
	}
}

// Hostile names must not fill a log line.
func TestParseQueuePath_ClipsErrors(t *testing.T) {
	_, err := core.ParseQueuePath("/a/" + strings.Repeat("x", 1<<20))
	if len(err.Error()) > 300 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}

var pathForm = regexp.MustCompile(`^(/[A-Za-z0-9][A-Za-z0-9_.-]{0,63}){2,5}$`)

func FuzzParseQueuePath(f *testing.F) {
	for _, s := range []string{"/a/b", "a/b", "/x", "/../x", "/a/b.dlq", "/a/b/g.retry", "/a//b", "/a/b\n", "/\xff/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		form := pathForm.MatchString(s) && !strings.HasSuffix(s, "\n")
		for label := range strings.SplitSeq(s, "/") {
			form = form && !strings.HasSuffix(label, core.SuffixDLQ) && !strings.HasSuffix(label, core.SuffixRetry)
		}
		got, err := core.ParseQueuePath(s)
		if (err == nil) != form || err == nil && got != s {
			t.Fatalf("%q: got %q, %v, well formed: %v", s, got, err, form)
		}
		if err != nil {
			return
		}
		if _, err := core.ParseAnyQueuePath(s); err != nil {
			t.Fatalf("%q is a path, but not any path: %v", s, err)
		}
		dlq := core.DLQPath(s, "g")
		if q, g, ok := core.SplitDLQPath(dlq); !ok || q != s || g != "g" {
			t.Fatalf("%q splits into %q, %q, %v", dlq, q, g, ok)
		}
		if _, err := core.ParseAnyQueuePath(dlq); err != nil {
			t.Fatalf("%q: %v", dlq, err)
		}
	})
}
