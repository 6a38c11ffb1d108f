package metadata

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/columbamq/columba/core"
)

// Partitions of the tables that keep all their rows in one.
const (
	PartitionPath         = "path"
	PartitionID           = "id"
	PartitionDeleted      = "deleted"
	PartitionDeletedQueue = "deleted-queue"
	PartitionOperation    = "operation"
	PartitionEnded        = "ended"
	PartitionCluster      = "cluster"
)

// NameKey is where Names keeps a queue's path.
func NameKey(path string) Key { return Key{PartitionPath, path} }

// QueueKey is where Queues keeps a queue.
func QueueKey(id core.QueueID) Key { return Key{PartitionID, id.String()} }

// GroupKey is where Groups keeps a group; the partition lists the groups of a queue.
func GroupKey(queue core.QueueID, name string) Key { return Key{queue.String(), name} }

// ExtentKey is where Extents keeps an extent's create row; the partition lists the extents of a queue by age.
func ExtentKey(queue core.QueueID, extent core.ExtentID) Key {
	return Key{queue.String(), extent.String()}
}

// SealKey is where Seals keeps an extent's state.
func SealKey(extent core.ExtentID) Key { return Key{PartitionID, extent.String()} }

// CancelKey is where Cancels keeps the cancelled messages of an extent.
func CancelKey(extent core.ExtentID) Key { return Key{PartitionID, extent.String()} }

// DeletedGroupKey is where Work keeps a hint that rows of a deleted group have to be removed.
func DeletedGroupKey(group core.GroupID) Key { return Key{PartitionDeleted, group.String()} }

// DeletedQueueKey is where Work keeps a hint that the deletion of a queue has to be finished.
func DeletedQueueKey(queue core.QueueID) Key { return Key{PartitionDeletedQueue, queue.String()} }

// AssignmentKey is where Assignments keeps one decision about a share; the partition lists the shares of a group. A row
// is written by one run of a controller. A decision without a run has the key of rows from before runs were part of it.
func AssignmentKey(group core.GroupID, extent core.ExtentID, p Precedence) Key {
	row := fmt.Sprintf("%s/%020d/%s", extent, p.Counter, p.By)
	if !p.Run.IsZero() {
		row += "/" + p.Run.String()
	}
	return Key{group.String(), row}
}

// DoneKey is where Dones keeps that a group has consumed an extent in one of its epochs; the partition lists those of a
// group.
func DoneKey(group core.GroupID, extent core.ExtentID, epoch uint64) Key {
	return Key{group.String(), fmt.Sprintf("%s/%020d", extent, epoch)}
}

// CheckpointPartition lists the checkpoints of a share, by epoch.
func CheckpointPartition(group core.GroupID, extent core.ExtentID) string {
	return group.String() + "/" + extent.String()
}

// CheckpointKey is where Checkpoints keeps the checkpoint that one run of an owner wrote in one epoch of the group.
func CheckpointKey(group core.GroupID, extent core.ExtentID, epoch uint64, run core.RunID) Key {
	return Key{CheckpointPartition(group, extent), fmt.Sprintf("%020d/%s", epoch, run)}
}

// CheckpointOf reads the epoch and the run from the key of a checkpoint; not ok for a key of another form.
func CheckpointOf(k Key) (epoch uint64, run core.RunID, ok bool) {
	text, of, _ := strings.Cut(k.Row, "/")
	epoch, err := strconv.ParseUint(text, 10, 64)
	if err == nil {
		run.ID, err = core.ParseID(of)
	}
	return epoch, run, err == nil
}

// ClaimKey is where Claims keeps the claims of the owners of a share in one epoch of the group.
func ClaimKey(group core.GroupID, extent core.ExtentID, epoch uint64) Key {
	return Key{CheckpointPartition(group, extent), fmt.Sprintf("%020d", epoch)}
}

// OperationKey is where Operations keeps the latest operation on an object.
func OperationKey(object core.ID) Key { return Key{PartitionOperation, object.String()} }

// EndedOperationKey is where Operations keeps an operation that has ended, once another one took its place.
func EndedOperationKey(id core.ID) Key { return Key{PartitionEnded, id.String()} }

// SelectedPartition lists the messages that an operation found in its extents.
func SelectedPartition(operation core.ID) string { return "selected/" + operation.String() }

// SelectedKey is where Operations keeps the messages that an operation found in an extent.
func SelectedKey(operation core.ID, extent core.ExtentID) Key {
	return Key{SelectedPartition(operation), extent.String()}
}

// AuditPartition lists the audit rows of a UTC day.
func AuditPartition(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// AuditKey is where Audit keeps the row with that id.
func AuditKey(at time.Time, id core.ID) Key { return Key{AuditPartition(at), id.String()} }

// LeaseKey is where Leases keeps the lease of that name.
func LeaseKey(name string) Key { return Key{PartitionID, name} }

// SettingKey is where Settings keeps a cluster-wide setting.
func SettingKey(name string) Key { return Key{PartitionCluster, name} }
