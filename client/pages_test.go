package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
)

func TestAdmin_Pages(t *testing.T) {
	f := &adminFake{pages: 3}
	a := startAdmin(t, f).Admin()
	var got []string
	for q, err := range a.ListQueues(limited(t), "/t/") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, q.Spec.Path)
	}
	want := []string{"/t/0-0", "/t/0-1", "/t/1-0", "/t/1-1", "/t/2-0", "/t/2-1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.loop = true
	n := 0
	for _, err := range a.ListQueues(limited(t), "/t/") {
		if n++; err != nil || n > 100 {
			break
		}
	}
	if n > 100 {
		t.Error("a listing that names the same page again does not end")
	}
}

// errAway is what a server answers while Cassandra is too busy for a page.
var errAway = core.Errorf(core.CodeUnavailable, "metadata could not be read in time")

// list walks the queues of three pages of two, of which the server refuses some.
func list(ctx context.Context, c *Client) (paths []string, err error) {
	for q, err := range c.Admin().ListQueues(ctx, "/t/") {
		if err != nil {
			return paths, err
		}
		paths = append(paths, q.Spec.Path)
	}
	return paths, nil
}

func TestAdmin_PagesAgain(t *testing.T) {
	f := &adminFake{pages: 3, refuse: func(page string, call int) error {
		switch {
		case page == "1" && call <= 2:
			return errAway
		case page == "1" && call == 3:
			return core.Errorf(core.CodeDeadline, "ListQueues did not end in time")
		}
		return nil
	}}
	got, err := list(limited(t), startAdmin(t, f))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/t/0-0", "/t/0-1", "/t/1-0", "/t/1-1", "/t/2-0", "/t/2-1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"": 1, "1": 4, "2": 1}, f.asked); diff != "" {
		t.Errorf("calls for each page (-want +got):\n%s", diff)
	}
}

func TestAdmin_PagesOnce(t *testing.T) {
	for _, tc := range []struct {
		name, page string
		err        error
	}{
		{"the first page", "", errAway},
		{"an error that stays", "1", core.Errorf(core.CodeInternal, "damaged row")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &adminFake{pages: 3, refuse: func(page string, _ int) error {
				if page == tc.page {
					return tc.err
				}
				return nil
			}}
			_, err := list(limited(t), startAdmin(t, f))
			if core.CodeOf(err) != core.CodeOf(tc.err) || f.asked[tc.page] != 1 {
				t.Errorf("%v after %d calls, want %v after one", err, f.asked[tc.page], tc.err)
			}
		})
	}
}

// A listing of which a page stays away ends with its time, and says why.
func TestAdmin_PagesEnd(t *testing.T) {
	away := &adminFake{pages: 3, refuse: func(page string, _ int) error {
		if page == "1" {
			return errAway
		}
		return nil
	}}
	const short = 300 * time.Millisecond
	t.Run("timeout of the client", func(t *testing.T) {
		paths, err := list(t.Context(), startAdmin(t, away, WithTimeout(short)))
		if len(paths) != 2 || core.CodeOf(err) != core.CodeUnavailable || !strings.Contains(err.Error(), "in time") {
			t.Errorf("%q, %v", paths, err)
		}
	})
	t.Run("deadline of the caller", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), short)
		defer cancel()
		paths, err := list(ctx, startAdmin(t, away))
		if len(paths) != 2 || core.CodeOf(err) != core.CodeUnavailable || !strings.Contains(err.Error(), "in time") {
			t.Errorf("%q, %v", paths, err)
		}
	})
	t.Run("the caller goes", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(short, cancel)
		if _, err := list(ctx, startAdmin(t, away)); !errors.Is(ctx.Err(), context.Canceled) || err == nil {
			t.Errorf("%v, and the context of the caller %v", err, ctx.Err())
		}
	})
	t.Run("the client is closed", func(t *testing.T) {
		c := startAdmin(t, away)
		time.AfterFunc(short, func() { c.Close() })
		if _, err := list(limited(t), c); core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("%v", err)
		}
	})
}
