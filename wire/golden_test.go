package wire

import (
	"bytes"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "write the golden vectors in testdata anew")

// vector is one encoding next to what it says. In decoded values bytes are hex, and ids in their usual form.
type vector struct {
	Name    string          `json:"name"`
	Hex     string          `json:"hex"`
	Decoded json.RawMessage `json:"decoded"`
}

func newVector(name string, encoded []byte, decoded any) vector {
	return vector{name, hex.EncodeToString(encoded), plainJSON(reflect.ValueOf(decoded))}
}

// checkGolden compares vectors with a file of testdata, or writes it.
func checkGolden(t *testing.T, file string, vectors []vector) {
	t.Helper()
	got, err := json.MarshalIndent(vectors, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs; the format is a contract (-want +got):\n%s", path, diff)
	}
}

// readGolden is the encodings of a file of testdata by name.
func readGolden(t testing.TB, file string) map[string][]byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	encodings := make(map[string][]byte)
	for _, v := range vectors {
		if encodings[v.Name], err = hex.DecodeString(v.Hex); err != nil {
			t.Fatalf("%s: %v", v.Name, err)
		}
	}
	return encodings
}

// plainJSON keeps the order of struct fields and leaves out those that are zero.
func plainJSON(v reflect.Value) json.RawMessage {
	if text, ok := v.Interface().(encoding.TextMarshaler); ok {
		b, _ := text.MarshalText()
		return fmt.Appendf(nil, "%q", b)
	}
	switch v.Kind() {
	case reflect.Pointer:
		return plainJSON(v.Elem())
	case reflect.Struct:
		var fields []string
		for i := range v.NumField() {
			if f := v.Field(i); !f.IsZero() && !(f.Kind() == reflect.Slice && f.Len() == 0) {
				fields = append(fields, fmt.Sprintf("%q:%s", snakeCase(v.Type().Field(i).Name), plainJSON(f)))
			}
		}
		return json.RawMessage("{" + strings.Join(fields, ",") + "}")
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return fmt.Appendf(nil, "%q", hex.EncodeToString(v.Bytes()))
		}
		var items []string
		for i := range v.Len() {
			items = append(items, string(plainJSON(v.Index(i))))
		}
		return json.RawMessage("[" + strings.Join(items, ",") + "]")
	}
	b, err := json.Marshal(v.Interface())
	if err != nil {
		panic(err)
	}
	return b
}

func snakeCase(name string) string {
	var b strings.Builder
	before := rune('A')
	for _, r := range name {
		if unicode.IsUpper(r) && !unicode.IsUpper(before) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
		before = r
	}
	return b.String()
}

func goldenRecords() map[string]*Record {
	delayed := fullRecord()
	delayed.DeliverAt, delayed.Delay = 0, 1500
	allBytes := make([]byte, 256)
	for i := range allBytes {
		allBytes[i] = byte(i)
	}
	return map[string]*Record{
		"1 minimal: one byte of payload":             {Payload: []byte("x")},
		"2 empty payload":                            {},
		"3 binary payload":                           {Payload: allBytes},
		"4 usual: id and key":                        plainRecord(5),
		"5 every attribute, deliver_at":              fullRecord(),
		"6 every attribute, delay":                   delayed,
		"7 empty payload, one attribute: attempts 1": {Attempts: 1},
	}
}

func TestGolden_Records(t *testing.T) {
	records := goldenRecords()
	var vectors []vector
	for _, name := range slices.Sorted(maps.Keys(records)) {
		vectors = append(vectors, newVector(name, mustAppendRecord(t, nil, records[name]), *records[name]))
	}
	checkGolden(t, "records.json", vectors)
	for name, b := range readGolden(t, "records.json") {
		var got Record
		n, err := DecodeRecord(b, &got)
		if err != nil || n != len(b) {
			t.Errorf("%s: DecodeRecord = %d, %v; want %d", name, n, err, len(b))
		}
		if diff := cmp.Diff(records[name], &got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", name, diff)
		}
	}
}

func TestGolden_Batch(t *testing.T) {
	const name = "two records at seq 501"
	b := sampleBatch()
	batch, err := DecodeBatch(b)
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "batch.json", []vector{newVector(name, b, struct {
		BatchHeader
		Records []byte
	}{batch.BatchHeader, batch.Records})})
	got, rest, err := NextBatch(readGolden(t, "batch.json")[name])
	if err != nil || len(rest) != 0 {
		t.Fatalf("NextBatch leaves %d bytes, %v", len(rest), err)
	}
	if diff := cmp.Diff(batch, got); diff != "" {
		t.Errorf("batch differs (-want +got):\n%s", diff)
	}
	if count, err := CheckRecords(got.Records, MaxPayload); err != nil || uint32(count) != got.Count {
		t.Errorf("CheckRecords = %d, %v; want %d", count, err, got.Count)
	}
	if sum := ExtendChecksum(0, got.Records); sum != got.Checksum {
		t.Errorf("checksum of the extent is %#x, the header says %#x", sum, got.Checksum)
	}
}

// decodedFrame is a Frame as the vectors show it.
type decodedFrame struct {
	Type, Version uint8
	Flags         uint16
	Stream        uint32
	Body          body
}

func TestGolden_Frames(t *testing.T) {
	var vectors []vector
	samples := make(map[string]body)
	add := func(name string, ty FrameType, flags uint16, b body) {
		name = fmt.Sprintf("%d %s", ty, name)
		encoded, at := BeginFrame(nil, ty, flags, 7)
		encoded = b.Append(encoded)
		EndFrame(encoded, at)
		samples[name] = b
		vectors = append(vectors, newVector(name, encoded, decodedFrame{uint8(ty), FrameVersion, flags, 7, b}))
	}
	for name, k := range kinds {
		for _, ty := range k.types {
			add(name, ty, k.flags, k.sample)
		}
	}
	add("batches", TypeBatches, 0, &Batches{sampleBatch()})
	slices.SortFunc(vectors, func(a, b vector) int { return strings.Compare(a.Name, b.Name) })
	checkGolden(t, "frames.json", vectors)

	for name, b := range readGolden(t, "frames.json") {
		f, rest, err := NextFrame(b)
		if err != nil || len(rest) != 0 {
			t.Errorf("%s: NextFrame leaves %d bytes, %v", name, len(rest), err)
			continue
		}
		got := reflect.New(reflect.TypeOf(samples[name]).Elem()).Interface().(body)
		if err := got.Decode(f.Body); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(samples[name], got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", name, diff)
		}
	}
}

// Batches stands for the body of TypeBatches.
type Batches struct{ Batches []byte }

func (b *Batches) Append(dst []byte) []byte { return append(dst, b.Batches...) }
func (b *Batches) Decode(body []byte) error {
	b.Batches = bytes.Clone(body)
	_, _, err := NextBatch(body)
	return err
}
