package gossip

import (
	"strings"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// Keys of the tags. They are told once, at the start, and never change.
const (
	tagID      = "id"
	tagRoles   = "roles"
	tagAddress = "addr"
	tagZone    = "zone"
	tagRun     = "run"
)

// maxTags bounds the bytes of keys and values. Serf's limit is 512, its encoding included.
const maxTags = 480

func tags(h membership.Host) map[string]string {
	return map[string]string{
		tagID: string(h.ID), tagRoles: strings.Join(h.Roles, ","), tagAddress: h.Address, tagZone: h.Zone, tagRun: h.Run.String(),
	}
}

func checkTags(h membership.Host) error {
	size := 0
	for k, v := range tags(h) {
		size += len(k) + len(v)
	}
	if size > maxTags {
		return core.Errorf(core.CodeBadArgument, "id, address and zone of this host are %d bytes too long for gossip; shorten the zone or the address", size-maxTags)
	}
	return nil
}

// hostOf reads what a member says of itself.
func hostOf(tags map[string]string) (membership.Host, error) {
	id, err := core.ParseHostID(tags[tagID])
	if err != nil {
		return membership.Host{}, err
	}
	run, err := core.ParseID(tags[tagRun])
	if err != nil {
		return membership.Host{}, err
	}
	h := membership.Host{ID: id, Address: tags[tagAddress], Zone: tags[tagZone], Run: core.RunID{ID: run}}
	if tags[tagRoles] != "" {
		h.Roles = strings.Split(tags[tagRoles], ",")
	}
	return h, nil
}
