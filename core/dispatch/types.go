package dispatch

import "github.com/columbamq/columba/core/acklevel"

// Group is a consumer group's part on this host.
type Group struct{}

// Share is a group's part of one extent.
type Share struct{}

// State is what a checkpoint holds.
type State struct {
	done acklevel.Window
}
