package wire

import "testing"

func TestTimed_FindsTimesInAnyRecord(t *testing.T) {
	plain, err := AppendRecord(nil, &Record{Payload: []byte("a"), Key: []byte("k"), ExpireAt: 1})
	if err != nil {
		t.Fatal(err)
	}
	if Timed(nil) || Timed(plain) || Timed(append(plain[:len(plain):len(plain)], plain...)) {
		t.Error("records without times count as timed")
	}
	for name, r := range map[string]Record{"deliver_at": {DeliverAt: 1}, "delay": {Delay: 1}} {
		records, err := AppendRecord(plain[:len(plain):len(plain)], &r)
		if err != nil {
			t.Fatal(err)
		}
		if !Timed(records) {
			t.Errorf("%s in the second record is not seen", name)
		}
	}
}
