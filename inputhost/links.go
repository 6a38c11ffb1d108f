package inputhost

import (
	"sync"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire/ws"
)

// links are the connections to stores that extents were opened on last. Safe for concurrent use.
type links struct {
	mu struct {
		sync.Mutex
		byStore map[core.HostID]*ws.Mux
	}
}

func newLinks() *links {
	l := &links{}
	l.mu.byStore = make(map[core.HostID]*ws.Mux)
	return l
}

func (l *links) used(store core.HostID, link *ws.Mux) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.byStore[store] = link
}

// listen notes for how long stores that owe acknowledgements have been silent, and asks those for a sign of life. Links
// that have ended are forgotten.
func (l *links) listen(lags map[core.HostID]lag) {
	l.mu.Lock()
	var ask []*ws.Conn
	for id, link := range l.mu.byStore {
		if link.Ended() != nil {
			delete(l.mu.byStore, id)
			continue
		}
		lag, ok := lags[id]
		if !ok || lag.oldest == 0 {
			continue
		}
		silent := link.Conn.Silent()
		lag.silent = min(silent, lag.oldest)
		lags[id] = lag
		if silent >= tickEvery {
			ask = append(ask, link.Conn)
		}
	}
	l.mu.Unlock()
	for _, c := range ask {
		c.Ping()
	}
}
