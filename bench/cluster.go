package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

// replicatedStores is how many stores, and replicas, the replicated sections have.
const replicatedStores = 3

// cluster is a controller with the frontend, one input host and three stores, a process each, and for those who consume
// an output host.
type cluster struct {
	controller, input, output *server
	stores                    []*server
}

// cluster starts one on new data directories, with an output host or without, and waits until all know each other. Each
// process has the flags.
func (r *rig) cluster(name string, output bool, flags ...string) (*cluster, error) {
	c := &cluster{}
	start := func(part, roles string) (*server, error) {
		s := &server{bin: r.columba, data: filepath.Join(r.dir, name+"-"+part), flags: append([]string{"--roles", roles, "--gossip", "127.0.0.1:0"}, flags...)}
		if c.controller != nil {
			s.flags = append(s.flags, "--join", c.controller.gossip)
		}
		_, err := s.start(r.ctx)
		return s, err
	}
	var err error
	if c.controller, err = start("controller", "controller,frontend"); err != nil {
		return nil, err
	}
	for i := 0; i < replicatedStores && err == nil; i++ {
		var s *server
		s, err = start(fmt.Sprint("store", i), "storehost")
		c.stores = append(c.stores, s)
	}
	if err == nil {
		c.input, err = start("input", "inputhost")
	}
	if err == nil && output {
		c.output, err = start("output", "outputhost")
	}
	if err == nil {
		err = c.await(r.ctx)
	}
	if err != nil {
		c.remove()
		return nil, err
	}
	return c, nil
}

func (c *cluster) all() []*server {
	return slices.DeleteFunc(slices.Concat([]*server{c.output, c.input}, c.stores, []*server{c.controller}), func(s *server) bool { return s == nil })
}

// await waits until the frontend knows all hosts.
func (c *cluster) await(ctx context.Context) error {
	cl, err := c.controller.dial(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		hosts, err := cl.Admin().ListHosts(ctx)
		if err == nil && len(hosts) == len(c.all()) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the frontend knows %d hosts of %d: %w", len(hosts), len(c.all()), err)
		}
	}
}

func (c *cluster) createQueue(r *rig, paths ...string) error {
	var specs []core.QueueSpec
	for _, p := range paths {
		specs = append(specs, core.QueueSpec{Path: p, Replicas: replicatedStores, MinReplicas: replicatedStores - 1})
	}
	return r.admin(c.controller, func(ctx context.Context, a admin) error {
		results, err := a.CreateQueues(ctx, specs)
		for _, res := range results {
			if err == nil {
				err = res.Err
			}
		}
		return err
	})
}

// cpu is what all processes of the cluster have used, in seconds.
func (c *cluster) cpu() (float64, error) {
	sum, err := c.cpuByRole()
	return sum.sum(), err
}

// remove stops everything and deletes its directories.
func (c *cluster) remove() {
	for _, s := range c.all() {
		s.remove()
	}
}
