package ring

import "testing"

// TestRing_AMarkIsNoLoss: a mark that cannot be read held nothing, and the groups around it prove that it was one.
func TestRing_AMarkIsNoLoss(t *testing.T) {
	o := newOwner(t, 1)
	o.append(o.fill(5000))
	o.append(o.fill(100))
	o.mark()
	mark := o.ring.head.end - blockSize
	o.append(o.fill(5000))
	last := o.append(o.fill(10))
	o.damage(mark+3, []byte{0})
	if damage := o.open(); len(damage) > 0 {
		t.Errorf("damage %v, of which no group but a mark is a part", damage)
	}
	if next := o.ring.Next(); next != last.Number+1 {
		t.Errorf("the log goes on at %d, want %d", next, last.Number+1)
	}
}

// TestRing_AMarkIsNoLoss_AtTheEndOfASegment: the group behind it is in another segment.
func TestRing_AMarkIsNoLoss_AtTheEndOfASegment(t *testing.T) {
	o := newOwner(t, 1)
	o.append(o.fill(5000))
	o.mark()
	o.damage(o.ring.head.end-blockSize+3, []byte{0})
	o.end()
	o.append(o.fill(5000))
	if damage := o.open(); len(damage) > 0 {
		t.Errorf("damage %v, of which no group but a mark is a part", damage)
	}
}

// TestRing_GoesOnBehindDamage: the owner notes up to where groups are lost. No later group gets such a number.
func TestRing_GoesOnBehindDamage(t *testing.T) {
	o := newOwner(t, 1)
	o.append(o.fill(100))
	lost := o.append(o.fill(100))
	o.damage(int64(lost.Offset), []byte("damage"))
	o.end()
	torn := o.append(o.fill(100))
	delete(o.groups, torn.Number)
	o.damage(int64(torn.Offset), []byte("damage"))
	damage := o.open()
	if len(damage) != 1 || damage[0] != (Damage{lost.Number, lost.Number}) {
		t.Errorf("damage %v, want group %d", damage, lost.Number)
	}
	if next := o.ring.Next(); next <= lost.Number {
		t.Errorf("the log goes on at %d", next)
	}
}
