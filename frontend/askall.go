package frontend

import (
	"context"
	"sync"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// askAll calls all hosts of a role side by side. It gives the answers in the order of hosts, and the ids of those that
// do not answer. It fails if a host refuses what no other one would do either, or if none answers.
func askAll[Q, R any](ctx context.Context, hosts []membership.Host, role string, req *Q, at func(addr string) rpc[Q, R]) (answers []*R, silent []string, err error) {
	timeout := askTimeout
	if len(hosts) == 1 {
		timeout = 0 // nobody else has an answer that this one would hold up
	}
	all, errs := make([]*R, len(hosts)), make([]error, len(hosts))
	var wg sync.WaitGroup
	for i, h := range hosts {
		wg.Go(func() { all[i], errs[i] = askOne(ctx, h, timeout, req, at) })
	}
	wg.Wait()
	err = core.Errorf(core.CodeUnavailable, "no %s is known; try again", role)
	for i, h := range hosts {
		if errs[i] == nil {
			answers = append(answers, all[i])
			continue
		}
		err = core.Errorf(core.CodeOf(errs[i]), "%s %s: %w", role, h.ID, errs[i])
		if !elsewhere(err) {
			return nil, nil, err
		}
		silent = append(silent, string(h.ID))
	}
	if len(answers) == 0 {
		return nil, nil, err
	}
	return answers, silent, nil
}
