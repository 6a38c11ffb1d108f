package inputhost

import (
	"testing"
	"time"
)

// heldOpen runs f while no controller answers, and checks that the head is still the same and takes messages. The head
// is sealed when a controller is back.
func heldOpen(t *testing.T, edit func(*Config), f func(r *harness, p *client)) {
	chained(t, edit, func(r *harness) {
		p := r.publisher("p", chainPath)
		p.send()
		p.flush()
		head := r.open(chainPath)[0].ID
		r.ctl.set(func() { r.ctl.mu.away = true })
		f(r, p)
		p.flush()
		r.all(p.n)
		if open := r.open(chainPath); len(open) != 1 || open[0].ID != head || r.ctl.sealed() > 0 {
			t.Fatalf("without a controller the head is %v, want %s", open, head)
		}
		p.send()
		p.flush()
		r.all(p.n)
		r.ctl.set(func() { r.ctl.mu.away = false })
		p.load(3*time.Second, 100*time.Millisecond)
		if idle := r.host.cfg.IdleAfter; idle < time.Minute {
			sleep(idle + 3*time.Second)
		}
		p.flush()
		r.all(p.n)
		if r.ctl.sealed() == 0 {
			t.Error("the head is not sealed although a controller is back")
		}
		r.inOrder("p")
	})
}

func TestChain_HeadGoesOnBeyondItsSizeWhileItCannotBeSealed(t *testing.T) {
	heldOpen(t, func(c *Config) { c.RollBytes = 5_000 }, func(_ *harness, p *client) {
		p.load(30*time.Second, 10*time.Millisecond)
	})
}

func TestChain_HeadGoesOnBeyondItsAgeWhileItCannotBeSealed(t *testing.T) {
	heldOpen(t, func(c *Config) { c.RollAge = 5 * time.Second }, func(_ *harness, p *client) {
		p.load(30*time.Second, 100*time.Millisecond)
	})
}

func TestChain_IdleHeadGoesOnWhileItCannotBeSealed(t *testing.T) {
	heldOpen(t, func(c *Config) { c.IdleAfter = 5 * time.Second }, func(*harness, *client) { sleep(30 * time.Second) })
}
