package cli

import (
	"context"
	"slices"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/node"
)

// stores are the hosts that are there and store messages; nil when nobody says so.
func (a *app) stores(ctx context.Context) []string {
	list, err := ask(ctx, a, a.admin().ListHosts, &pb.ListHostsRequest{})
	if err != nil {
		return nil
	}
	ids := []string{}
	for _, h := range list.GetHosts() {
		if slices.Contains(h.GetRoles(), node.RoleStore) && h.GetSince() == nil {
			ids = append(ids, h.GetHost())
		}
	}
	return ids
}

// noteFewStores says that a queue asks for more copies than there are stores, which is allowed as long as there are min_replicas.
func (a *app) noteFewStores(ctx context.Context, q *pb.Queue) {
	want := int(q.GetSpec().GetReplicas())
	if want <= 1 {
		return // one store is enough, and the servers' own refusals say when there is none
	}
	if have := len(a.stores(ctx)); have > 0 && have < want {
		a.say("note: %s asks for %d copies and the cluster has %s now: messages get %d, and the missing copies when there are more stores",
			q.GetSpec().GetPath(), want, plural(have, "store"), have)
	}
}
