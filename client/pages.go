package client

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"

	"github.com/columbamq/columba/core"
)

// pages walks a paged listing. A page has the time of one call. A listing that has begun asks for a page again while
// that time lasts and the servers say that they cannot answer for now: what it has yielded is of no use without the
// rest. The first page is asked for once, so that a listing fails as soon as any other call while metadata are away.
func pages[P, T any](ctx context.Context, c *Client, page func(ctx context.Context, after string) ([]*P, string, error), turn func(*P) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for after := ""; ; {
			items, next, err := askPage(ctx, c, after, page)
			if err != nil {
				yield(none, err)
				return
			}
			for _, p := range items {
				v, err := turn(p)
				if !yield(v, err) || err != nil {
					return
				}
			}
			if next == "" {
				return
			}
			if next == after {
				yield(none, core.Errorf(core.CodeInternal, "server answered page %q after itself", next))
				return
			}
			after = next
		}
	}
}

// askPage asks for the page behind after. When the time is over, the error is the last one that says why.
func askPage[P any](ctx context.Context, c *Client, after string, page func(context.Context, string) ([]*P, string, error)) ([]*P, string, error) {
	limited, cancel := c.withTimeout(ctx)
	defer cancel()
	var why error
	for tries := 1; ; tries++ {
		items, next, err := page(limited, after)
		switch {
		case err == nil:
			return items, next, nil
		case why != nil && limited.Err() != nil && !errors.Is(ctx.Err(), context.Canceled):
			return nil, "", why
		case after == "" || !away(err) && core.CodeOf(err) != core.CodeDeadline || limited.Err() != nil || c.open() != nil:
			return nil, "", err
		}
		why = err
		pause(limited, reconnect.Delay(tries, rand.Float64()))
	}
}

func all[P, T any](items []*P, turn func(*P) (T, error)) ([]T, error) {
	out := make([]T, 0, len(items))
	for _, p := range items {
		v, err := turn(p)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}
