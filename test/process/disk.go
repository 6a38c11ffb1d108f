package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
)

// SmallDisk is a directory on a disk of its own, an ext4 file system of so many bytes, until the test ends. The test is
// skipped where that cannot be: it needs Linux, root, mkfs.ext4, and a kernel that mounts files.
func SmallDisk(t testing.TB, bytes int64) string {
	t.Helper()
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("SKIPPED: a small disk needs Linux and root; run the tests as root to have full disks tested")
	}
	dir := t.TempDir()
	image, mount := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	for _, args := range [][]string{
		{"truncate", "-s", strconv.FormatInt(bytes, 10), image},
		{"mkfs.ext4", "-q", "-F", "-m", "0", image},
		{"mkdir", mount},
		{"mount", "-o", "loop", image, mount},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: no small disk can be made: %q: %v\n%s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", mount).CombinedOutput(); err != nil {
			t.Errorf("unmount the small disk: %v\n%s", err, out)
		}
	})
	return mount
}
