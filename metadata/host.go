package metadata

import (
	"github.com/columbamq/columba/core"
)

// HostRecord is a host's heartbeat.
type HostRecord struct {
	ID      core.HostID `json:"id"`
	Roles   []string    `json:"roles"`
	Address string      `json:"address"`
	Zone    string      `json:"zone"`
	Run     core.RunID  `json:"run"`
	State   string      `json:"state"`
}
