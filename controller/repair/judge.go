package repair

import "time"

// copied is what is known of one place of a sealed extent: a holder, or a store of its replica set that is none.
type copied struct {
	Holder bool          // it has everything, on the disk that is there
	Gone   time.Duration // how long its store has not answered; 0: it answers
}

// patience is how long a store may be away.
type patience struct {
	Blink time.Duration // shorter than this, and it counts as there
	Gone  time.Duration // longer than this, and its copy is made anew elsewhere
}

// judgement of an extent's copies.
type judgement struct {
	Good    int  // holders that are there
	Below   bool // fewer than two, or than are wanted if that is fewer: an alarm, and repaired at once
	Repair  bool // a copy is to be made now
	Surplus int  // holders that answer, beyond what is wanted
	Waits   bool // a place does not answer, and does not count as gone yet: time alone changes what is to be done
}

// judge says what the copies of an extent that wants so many need.
func judge(copies []copied, want int, p patience) judgement {
	var j judgement
	expected, answering := 0, 0 // expected: will be there again, if nothing else goes wrong
	for _, c := range copies {
		j.Waits = j.Waits || 0 < c.Gone && c.Gone < p.Gone
		switch {
		case c.Holder && c.Gone < p.Blink:
			j.Good++
			expected++
		case c.Gone > 0 && c.Gone < p.Gone:
			expected++ // a replica that is no holder yet is completed when its store is back
		}
		if c.Holder && c.Gone == 0 {
			answering++
		}
	}
	j.Below = j.Good < min(2, want)
	j.Repair = j.Below || expected < want
	j.Surplus = max(0, answering-want)
	return j
}
