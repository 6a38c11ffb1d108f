package core

import (
	"encoding/binary"
	"hash/fnv"
)

// InventoryBuckets is into how many buckets a store's inventory is divided, by the last byte of the extent's id.
const InventoryBuckets = 256

// InventoryBucket of an extent.
func InventoryBucket(extent ExtentID) int { return int(extent.ID[15]) }

// ReplicaDigest stands for what a store says about one of its replicas. The digest of a bucket is the XOR of those of
// its replicas, so that one that changed is taken out and put in again without a look at the others.
func ReplicaDigest(extent ExtentID, sealed bool, l Seq, checksum uint32, damaged bool) uint64 {
	var b [30]byte
	copy(b[:16], extent.ID[:])
	if sealed {
		b[16] = 1
	}
	binary.LittleEndian.PutUint64(b[17:], uint64(l))
	binary.LittleEndian.PutUint32(b[25:], checksum)
	if damaged {
		b[29] = 1
	}
	h := fnv.New64a()
	h.Write(b[:])
	return mix(h.Sum64())
}
