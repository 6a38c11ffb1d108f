package gossip

import (
	"strings"
	"unicode/utf8"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// Keys of the tags. They are told at the start, and never change, but that the cluster is told once it is known.
const (
	tagID      = "id"
	tagRoles   = "roles"
	tagAddress = "addr"
	tagZone    = "zone"
	tagRun     = "run"
	tagCluster = "c"
)

// maxTags bounds the bytes of keys and values. Serf's limit is 512, its encoding included.
const maxTags = 480

func tags(h membership.Host, cluster core.ID) map[string]string {
	out := map[string]string{
		tagID: string(h.ID), tagRoles: strings.Join(h.Roles, ","), tagAddress: h.Address, tagZone: h.Zone, tagRun: h.Run.String(),
	}
	if !cluster.IsZero() {
		out[tagCluster] = shortCluster(cluster)
	}
	return out
}

// shortCluster is the random end of a cluster's id: enough to tell clusters apart, and short, as tags are.
func shortCluster(id core.ID) string {
	s := id.String()
	return s[len(s)-12:]
}

func checkTags(h membership.Host) error {
	size := 0
	for k, v := range tags(h, core.ID{15: 1}) {
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
	for _, tag := range [...]string{tagAddress, tagZone, tagRoles} { // one of them in an answer that is no text would fail the answer
		if !utf8.ValidString(tags[tag]) {
			return membership.Host{}, core.Errorf(core.CodeBadArgument, "the %s of host %s is no text: %q", tag, id, tags[tag])
		}
	}
	h := membership.Host{ID: id, Address: tags[tagAddress], Zone: tags[tagZone], Run: core.RunID{ID: run}}
	if tags[tagRoles] != "" {
		h.Roles = strings.Split(tags[tagRoles], ",")
	}
	return h, nil
}
