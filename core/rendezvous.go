package core

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"
)

// PublishHosts is how many input hosts the publishers of a queue spread over: those that rank first by the queue's id.
const PublishHosts = 2

// Rank orders items by rendezvous hashing (Thaler and Ravishankar, 1998) of key with each item's host, the winner
// first: when a host comes or goes, only its own keys move. Every host of the cluster ranks alike.
func Rank[T any](key string, items []T, host func(T) HostID) []T {
	type scored struct {
		item  T
		id    HostID
		score uint64
	}
	all := make([]scored, 0, len(items))
	for _, item := range items {
		id := host(item)
		all = append(all, scored{item, id, rendezvousScore(key, id)})
	}
	slices.SortFunc(all, func(a, b scored) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.id, b.id)) })
	out := make([]T, 0, len(items))
	for _, s := range all {
		out = append(out, s.item)
	}
	return out
}

// RanksFirst reports whether Rank puts a host before all others, without a list of them.
func RanksFirst(key string, host HostID, others []HostID) bool {
	mine := rendezvousScore(key, host)
	for _, other := range others {
		score := rendezvousScore(key, other)
		if score > mine || score == mine && other < host {
			return false
		}
	}
	return true
}

// RankWeighted is Rank where an item of twice the weight wins twice the keys. Weights must be above zero.
func RankWeighted[T any](key string, items []T, host func(T) HostID, weight func(T) float64) []T {
	type scored struct {
		item  T
		id    HostID
		after float64 // exponentially distributed: the first of several wins by their rates
	}
	all := make([]scored, 0, len(items))
	for _, item := range items {
		id := host(item)
		uniform := (float64(rendezvousScore(key, id)>>11) + 0.5) / (1 << 53) // in 0 … 1, never at an end
		all = append(all, scored{item, id, -math.Log(uniform) / weight(item)})
	}
	slices.SortFunc(all, func(a, b scored) int { return cmp.Or(cmp.Compare(a.after, b.after), cmp.Compare(a.id, b.id)) })
	out := make([]T, 0, len(items))
	for _, s := range all {
		out = append(out, s.item)
	}
	return out
}

// rendezvousScore finishes FNV-1a with a mixer: FNV alone mixes its last bytes too little to rank by.
func rendezvousScore(key string, host HostID) uint64 {
	h := fnv.New64a()
	h.Write([]byte(key))
	h.Write([]byte{0})
	h.Write([]byte(host))
	return mix(h.Sum64())
}

// mix is the finisher of MurmurHash3.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return x
}
