package lifecycle

import "golang.org/x/sync/errgroup"

// Each calls f for all items, limit of them side by side, and returns when all calls have.
func Each[T any](limit int, items []T, f func(i int, item T)) {
	var calls errgroup.Group
	calls.SetLimit(limit)
	for i, item := range items {
		calls.Go(func() error {
			f(i, item)
			return nil
		})
	}
	calls.Wait() // no function fails
}
