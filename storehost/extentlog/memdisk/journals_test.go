package memdisk

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Crashes leave of journals what they leave of the files of Pebble's crashable file system, whenever they come.
func TestCrashable_LosesWhatPebblesDoes(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		var want vfs.FS = vfs.NewCrashableMem()
		var got vfs.FS = newCrashable(vfs.NewCrashableMem())
		pair := []vfs.FS{want, got}
		name, files := "000001.seg", make([]vfs.File, 2)
		for i, fs := range pair {
			files[i] = create(t, fs, name)
		}
		for step := range 60 {
			b := bytes.Repeat([]byte{byte(step + 1)}, 1+random.IntN(6_000))
			at := int64(random.IntN(20_000))
			kept := []int{0, 100, 50}[random.IntN(3)]
			op := random.IntN(10)
			var read [2][]byte
			for i := range pair {
				var err error
				switch op {
				case 0, 1, 2, 3:
					_, err = files[i].WriteAt(bytes.Clone(b), at) // Pebble spoils the bytes of a write under the race detector
				case 4:
					read[i] = make([]byte, len(b))
					_, err = files[i].ReadAt(read[i], at)
				case 5, 6:
					err = files[i].SyncData()
				case 7:
					files[i], err = reopen(files[i], pair[i], name)
				case 8:
					cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rand.New(rand.NewPCG(seed, uint64(step)))}
					if c, ok := pair[i].(*crashable); ok {
						pair[i] = c.crash(cfg)
					} else {
						pair[i] = pair[i].(*vfs.MemFS).CrashClone(cfg)
					}
					files[i], err = reopen(files[i], pair[i], name)
				}
				if err != nil {
					t.Fatalf("seed %d, step %d, operation %d: %v", seed, step, op, err)
				}
			}
			if !bytes.Equal(read[0], read[1]) {
				t.Fatalf("seed %d, step %d: other bytes are read than from Pebble's", seed, step)
			}
			if w, g := content(t, pair[0], name), content(t, pair[1], name); !bytes.Equal(w, g) {
				t.Fatalf("seed %d, step %d, operation %d: the journal has %d bytes, other than the %d of the same in Pebble's", seed, step, op, len(g), len(w))
			}
		}
	}
}

// reopen closes a journal and opens it again.
func reopen(before vfs.File, fs vfs.FS, name string) (vfs.File, error) {
	if err := before.Close(); err != nil {
		return nil, err
	}
	return fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
}

// create makes a journal in a directory that is synced.
func create(t *testing.T, fs vfs.FS, name string) vfs.File {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(make([]byte, 32_000))
	}
	if err = errors.Join(err, f.Sync()); err != nil {
		t.Fatal(err)
	}
	dir, err := fs.OpenDir("/")
	if err == nil {
		err = dir.Sync()
	}
	if err != nil {
		t.Fatal(err)
	}
	j, err := reopen(f, fs, name)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func content(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
