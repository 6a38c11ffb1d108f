package node

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// maxProfile is the longest profile or trace: each slows the server down while it is taken.
const maxProfile = 60 * time.Second

// profiles serves one profile at a time.
type profiles struct{ mu sync.Mutex }

// one serves a page of profiles unless another is served.
func (p *profiles) one(page http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := r.FormValue("seconds"); text != "" {
			s, err := strconv.ParseFloat(text, 64)
			if err != nil || !(s >= 0 && s <= maxProfile.Seconds()) { // also refuses NaN
				writeText(w, http.StatusBadRequest, "seconds is not a number in 0 … 60; take several profiles one after another")
				return
			}
		}
		if !p.mu.TryLock() {
			w.Header().Set("Retry-After", "1")
			writeText(w, http.StatusTooManyRequests, "another profile is being taken; try again when it is done")
			return
		}
		defer p.mu.Unlock()
		page(w, r)
	})
}
