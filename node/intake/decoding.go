package intake

import (
	"context"
	"runtime"
	"time"

	"github.com/columbamq/columba/core"
)

// decoding bounds how many large bodies are weighed and decoded at once, to half of the processors and at least one.
// Either is work for a processor alone, of up to a second: on all of them it would make every other call wait.
type decoding chan struct{}

func newDecoding() decoding { return make(decoding, max(1, runtime.GOMAXPROCS(0)/2)) }

// begin waits for a processor, at most so long; end must follow. CodeThrottled when there was none in time.
func (d decoding) begin(ctx context.Context, wait time.Duration) error {
	select {
	case d <- struct{}{}:
		return nil
	default:
	}
	give := time.NewTimer(wait)
	defer give.Stop()
	select {
	case d <- struct{}{}:
		return nil
	case <-give.C:
		err := core.Errorf(core.CodeThrottled, "the server decodes as many large requests as it may; try again, or send smaller ones")
		err.RetryAfter = time.Second
		return err
	case <-ctx.Done():
		return core.Errorf(core.CodeUnavailable, "the client has gone: %w", context.Cause(ctx))
	}
}

func (d decoding) end() { <-d }

// weigh reserves what a body becomes when it is decoded, where that is more than its bytes: a message of two bytes
// takes many. It reports whether decoding it is work that must not be done on all processors.
func (in *Intake) weigh(ctx context.Context, a *arrival, whole []byte) (heavy bool, err error) {
	heavy = len(whole) > SmallBody
	if heavy {
		if err := in.decoding.begin(ctx, a.body.b.limits.Wait); err != nil {
			return true, err
		}
	}
	most := a.body.b.most(large)
	message := whole[a.head:]
	weight := int64(0)
	if a.form.json {
		weight = weighJSON(message, most)
	} else {
		weight = weighProto(message, a.input, most)
	}
	if heavy {
		in.decoding.end() // who waits for room must not hold the processor: who has the room waits for that
	}
	if weight > most { // it was not counted further
		return heavy, core.Errorf(core.CodeTooLarge, "the request takes more than %d bytes when it is decoded; send it in several", most)
	}
	heavy = heavy || weight > SmallBody
	if more := weight - int64(len(message)); more > int64(len(message))+firstBuffer {
		return heavy, a.body.grow(ctx, classOf(weight), more)
	}
	return heavy, nil
}
