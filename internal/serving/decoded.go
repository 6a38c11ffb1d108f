package serving

import (
	"context"

	"connectrpc.com/connect"
)

// decodedKey is under which a request's context has the function of WithDecoded.
type decodedKey struct{}

// WithDecoded is a context for a request to a Handler, which calls done as soon as the request's body is decoded. From
// then on the call works. done is not called when the body cannot be decoded, and for a stream it is called before.
func WithDecoded(ctx context.Context, done func()) context.Context {
	return context.WithValue(ctx, decodedKey{}, done)
}

// decoded calls the function of WithDecoded.
type decoded struct{}

func (decoded) tell(ctx context.Context) {
	if done, ok := ctx.Value(decodedKey{}).(func()); ok {
		done()
	}
}

// WrapUnary implements connect.Interceptor.
func (d decoded) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		d.tell(ctx)
		return next(ctx, req)
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (d decoded) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		d.tell(ctx)
		return next(ctx, conn)
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (decoded) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}
