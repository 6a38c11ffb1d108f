package dispatch

// queue is a first-in-first-out list that reuses its memory.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) push(v T) {
	if q.head > 32 && q.head > len(q.items)/2 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

// front is the oldest item; the queue must not be empty.
func (q *queue[T]) front() *T { return &q.items[q.head] }

func (q *queue[T]) back() *T { return &q.items[len(q.items)-1] }

func (q *queue[T]) pop() T {
	var zero T
	v := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return v
}

// trim gives an empty queue's memory back.
func (q *queue[T]) trim() {
	if q.len() == 0 {
		q.items, q.head = nil, 0
	}
}

// all is the items from the oldest; filter keeps those for which keep is true.
func (q *queue[T]) all() []T { return q.items[q.head:] }

func (q *queue[T]) filter(keep func(*T) bool) {
	n := 0
	for i := q.head; i < len(q.items); i++ {
		if keep(&q.items[i]) {
			q.items[n] = q.items[i]
			n++
		}
	}
	clear(q.items[n:])
	q.items, q.head = q.items[:n], 0
}
