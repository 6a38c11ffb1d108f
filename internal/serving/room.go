package serving

import "context"

// roomKey is under which a request's context has the function of WithAnswerRoom.
type roomKey struct{}

// WithAnswerRoom is a context for a request to a Handler whose answer has a budget. await waits until there is room for
// an answer, and fails with CodeThrottled if there is none in time.
func WithAnswerRoom(ctx context.Context, await func(context.Context) error) context.Context {
	return context.WithValue(ctx, roomKey{}, await)
}

// AwaitAnswerRoom waits until the server has room for the answer to the request of a context. A call that has waited
// for something to answer uses it before it takes what it answers. It returns nil at once if answers have no budget.
func AwaitAnswerRoom(ctx context.Context) error {
	await, ok := ctx.Value(roomKey{}).(func(context.Context) error)
	if !ok {
		return nil
	}
	return await(ctx)
}

// holdKey is under which a request's context has the function of WithAnswerHold.
type holdKey struct{}

// WithAnswerHold is a context for a request whose answer counts as so many bytes from when hold is called.
func WithAnswerHold(ctx context.Context, hold func(n int)) context.Context {
	return context.WithValue(ctx, holdKey{}, hold)
}

// HoldAnswer tells how large the answer to the request of a context is before it is packed.
func HoldAnswer(ctx context.Context, n int) {
	if hold, ok := ctx.Value(holdKey{}).(func(int)); ok {
		hold(n)
	}
}
