package inputhost

import (
	"testing"
	"time"
)

// A link that is dead, though nobody was told, costs an opening a probe; an idle one that lives costs nothing.
func TestHost_OldLinks(t *testing.T) {
	for name, c := range map[string]struct {
		dead int
		most time.Duration
	}{"idle": {0, 20 * time.Millisecond}, "one is dead": {1, probeFor + 50*time.Millisecond}, "all are dead": {3, probeFor + 50*time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, nil, func(r *harness) {
				p := r.publisher("p", path)
				p.send()
				p.flush()
				sleep(2 * DefaultConfig().IdleAfter) // the extent is sealed, and the links are silent but for pings
				for _, s := range r.stores[:c.dead] {
					r.goDead(s.addr())
				}
				sleep(7 * time.Second)
				began := time.Now()
				p.send()
				p.flush()
				r.all(2)
				if took := time.Since(began); took > c.most {
					t.Errorf("published within %s, want at most %s", took, c.most)
				}
			})
		})
	}
}
