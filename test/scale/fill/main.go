// Fill writes the metadata of a large cluster into the embedded metadata of a stopped server, or into Cassandra. The extents
// are on no store: it is for measurements of what reads metadata.
//
//	go run ./test/scale/fill -to DATA/metadata -queues 10000 -extents 10
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"strings"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/cassandra"
	"github.com/columbamq/columba/metadata/pebble"
	"github.com/columbamq/columba/test/scale"
)

func main() {
	to := flag.String("to", "", "directory of embedded metadata, or a URL of Cassandra")
	size := scale.Size{Behind: 2}
	flag.IntVar(&size.Queues, "queues", 10_000, "queues, with a group each")
	flag.IntVar(&size.Extents, "extents", 10, "extents of each queue")
	flag.Parse()
	if err := fill(context.Background(), *to, size); err != nil {
		log.Fatal(err)
	}
}

func fill(ctx context.Context, to string, size scale.Size) error {
	s, err := open(ctx, to)
	if err != nil {
		return err
	}
	defer s.Close()
	began := time.Now()
	run, owner := core.RunID{ID: core.NewID(began)}, core.RunID{ID: core.NewID(began)}
	hosts := scale.Hosts{
		Controller: "controller1", Run: run, Input: "input1", InputRun: core.RunID{ID: core.NewID(began)},
		Owner: func(core.GroupID, core.ExtentID) (core.HostID, core.RunID) { return "output1", owner },
	}
	for _, id := range []core.HostID{"store1", "store2", "store3"} {
		hosts.Stores = append(hosts.Stores, core.Place{Store: id, Disk: core.DiskID{ID: core.NewID(began)}})
	}
	c, err := scale.Write(ctx, s, size, hosts, began)
	if err != nil {
		return err
	}
	log.Printf("%d queues with %d extents were written in %s", len(c.Queues), len(c.Extents), time.Since(began).Round(time.Millisecond))
	return nil
}

func open(ctx context.Context, to string) (metadata.Store, error) {
	if !strings.HasPrefix(to, cassandra.Scheme) {
		return pebble.Open(to, 0, slog.Default())
	}
	cfg, err := cassandra.ParseURL(to)
	if err != nil {
		return nil, err
	}
	return cassandra.Open(ctx, cfg)
}
