package faulty_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/metadatatest"
)

// A load accepts stores whose replicas differ, and whose answers get lost.
func TestLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := faulty.NewReplicas(faulty.Divergence{Seed: 1, Late: 0.4, Delay: time.Second, Undecided: 0.01})
		defer rows.Close()
		var stores []metadata.Store
		for seed := range uint64(3) {
			stores = append(stores, faulty.New(rows, faulty.Faults{Seed: seed, Before: 0.05, Lost: 0.02, Delay: 30 * time.Millisecond}))
		}
		load := metadatatest.Start(t, stores)
		load.Await(t, 25)
		load.Next(t)
		load.Await(t, 25)
		load.End(t)
	})
}
