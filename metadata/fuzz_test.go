package metadata

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// FuzzRecords reads any bytes as the record of each table. A record that is read is written, and read the same.
func FuzzRecords(f *testing.F) {
	for _, v := range []any{
		AssignmentRecord{}, AuditRecord{}, ClaimRecord{}, DeletedGroupRecord{}, DeletedQueueRecord{}, DoneRecord{}, ExtentRecord{}, GroupRecord{}, HeadRecord{}, NameRecord{}, NamespaceRecord{},
		OperationRecord{}, SelectedRecord{}, QueueRecord{}, SealRecord{}, TokenKeysRecord{},
	} {
		b, err := encode(Settings, Key{}, v)
		if err != nil {
			f.Fatalf("%T: %v", v, err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		record[AssignmentRecord](t, b)
		record[AuditRecord](t, b)
		record[ClaimRecord](t, b)
		record[DoneRecord](t, b)
		record[ExtentRecord](t, b)
		record[DeletedGroupRecord](t, b)
		record[DeletedQueueRecord](t, b)
		record[GroupRecord](t, b)
		record[HeadRecord](t, b)
		record[NameRecord](t, b)
		record[NamespaceRecord](t, b)
		record[OperationRecord](t, b)
		record[SelectedRecord](t, b)
		record[QueueRecord](t, b)
		record[SealRecord](t, b)
		record[TokenKeysRecord](t, b)
	})
}

func record[T any](t *testing.T, b []byte) {
	t.Helper()
	v, err := decode[T](Settings, Row{Value: b})
	if err != nil {
		return
	}
	out, err := encode(Settings, Key{}, v)
	if err != nil {
		t.Fatalf("%T that was read cannot be written: %v", v, err)
	}
	again, err := decode[T](Settings, Row{Value: out})
	if err != nil {
		t.Fatalf("%T that was written cannot be read: %v\n%s", v, err, out)
	}
	if diff := cmp.Diff(v, again, cmpopts.EquateEmpty(), cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		t.Fatalf("%T (-read +written and read):\n%s", v, diff)
	}
}
