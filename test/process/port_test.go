package process

import "testing"

// No port is given to two servers, although neither listens yet, and each is given again later.
func TestFreePorts_AreGivenOnce(t *testing.T) {
	given := make(map[int]bool)
	for range 100 {
		first := FreePorts(t, 2, 1000)
		for _, port := range []int{first, first + 1, first + 1000, first + 1001, FreePort(t)} {
			if given[port] {
				t.Fatalf("port %d was given twice, of %d", port, len(given))
			}
			given[port] = true
		}
	}
	var port int
	t.Run("another test", func(t *testing.T) { port = FreePort(t) })
	release, err := claim(port, 1, 0)
	if err != nil {
		t.Fatalf("port %d is not given back by a test that has ended: %v", port, err)
	}
	release()
}
