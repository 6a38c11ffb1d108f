package extentlog

// flushRows writes tables of the rows of a segment that has ended. So a start has few rows to apply, and damage to a
// group whose rows are in a table costs its batches alone.
func (j *journal) flushRows() {
	if j.e.refusing() != nil { // a store that only reads opens the ring anew when it has room
		return
	}
	ended := uint64(0)
	for _, u := range j.ring.Uses() {
		if u.Ended {
			ended = u.Serial
		}
	}
	if ended <= j.keeper.flushed {
		return
	}
	if j.keeper.flush != nil && !isClosed(j.keeper.flush) {
		return
	}
	j.keeper.flushed = ended
	if err := j.beginFlush(); err != nil && j.e.refusing() == nil {
		j.e.backgroundError(err)
	}
}

// beginFlush ends the memtable. One that cannot be written is tried again without end, so no second one is to wait
// behind it: a full list of memtables stops all who write, for good.
func (j *journal) beginFlush() error {
	if err := j.awaitFlush(); err != nil {
		return err
	}
	var flush <-chan struct{}
	err := j.e.guarded(func() (err error) {
		flush, err = j.e.db.AsyncFlush()
		return err
	})
	if err == nil {
		j.keeper.flush = flush
	}
	return err
}

// awaitFlush waits for the end of the flush that began last.
func (j *journal) awaitFlush() error {
	if j.keeper.flush == nil {
		return nil
	}
	select {
	case <-j.keeper.flush:
		return nil
	case <-j.e.failed:
		return j.e.refusing()
	}
}

// flushDeletions writes deletions of batches to tables: a range of which some wait in memory is cut out with their
// flush, and whatever is appended meanwhile waits for that.
func (j *journal) flushDeletions() error {
	deletions := j.e.moves.deletions.Load()
	if deletions == j.e.repacker.flushed {
		return nil
	}
	if err := j.beginFlush(); err != nil {
		return err
	}
	if err := j.awaitFlush(); err != nil {
		return err
	}
	j.e.repacker.flushed = deletions
	return nil
}
