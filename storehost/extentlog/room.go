package extentlog

import "context"

// AwaitRoom implements Log.
func (e *Engine) AwaitRoom(ctx context.Context) {
	for room := e.queue.crowded(); room != nil; room = e.queue.crowded() {
		select {
		case <-room:
		case <-e.stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

// crowded is nil while at most half of what may wait does, and after close; else it is closed when that may be so again.
func (q *queue) crowded() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.closed || q.mu.bytes <= q.limit/2 {
		return nil
	}
	if q.mu.room == nil {
		q.mu.room = make(chan struct{})
	}
	return q.mu.room
}

func (q *queue) tellRoomLocked() {
	if q.mu.room != nil && q.mu.bytes <= q.limit/2 {
		close(q.mu.room)
		q.mu.room = nil
	}
}
