package metadata

// The tables, and the records that their rows hold.
var (
	Names       = Table{"name", RuleCAS}       // ("path", path) → NameRecord
	Queues      = Table{"queue", RuleCAS}      // ("id", queue id) → QueueRecord
	Namespaces  = Table{"namespace", RuleCAS}  // ("id", namespace) → NamespaceRecord
	Groups      = Table{"group", RuleCAS}      // (queue id, group name) → GroupRecord
	Extents     = Table{"extent", RulePut}     // (queue id, extent id) → ExtentRecord, written once
	Seals       = Table{"seal", RuleCAS}       // ("id", extent id) → SealRecord
	Heads       = Table{"head", RuleCAS}       // ("id", queue id) → HeadRecord: the newest extent of a CP queue's chain
	Work        = Table{"work", RulePut}       // ("open/" | "live/" + shard, extent id) → ExtentRecord: hints for controllers: not sealed yet | not retired yet; ("deleted", group id) → DeletedGroupRecord; ("deleted-queue", queue id) → DeletedQueueRecord
	Assignments = Table{"assignment", RulePut} // (group id, extent id/counter/by/run) → AssignmentRecord, never updated, the highest wins
	Dones       = Table{"done", RulePut}       // (group id, extent id/epoch) → DoneRecord: the group has consumed the extent
	Checkpoints = Table{"checkpoint", RulePut} // (group id/extent id, epoch/owner run id) → blob of core/dispatch
	Claims      = Table{"claim", RuleCAS}      // (group id/extent id, epoch) → ClaimRecord: of groups that deliver at most once
	Cancels     = Table{"cancel", RuleCAS}     // ("id", extent id) → cancel.Book of core/cancel: of timer extents of which messages were cancelled
	Operations  = Table{"operation", RuleCAS}  // ("operation", object id) → OperationRecord: the latest of that object; ("ended", id): the others; ("selected/" + id, extent id) → SelectedRecord
	Audit       = Table{"audit", RulePut}      // (day, id) → AuditRecord
	Leases      = Table{"lease", RuleCAS}      // ("id", name) → lease.Record, never deleted
	Settings    = Table{"setting", RuleCAS}    // ("cluster", name) → cluster-wide settings and keys
)

// Tables are all of them.
var Tables = []Table{
	Names, Queues, Namespaces, Groups, Extents, Seals, Heads, Work, Assignments, Dones, Checkpoints, Claims, Cancels, Operations, Audit,
	Leases, Settings,
}

// Ends reports whether an Update may give rows of the table a time to live. Such a table has no listing: Cassandra
// finds the rows of the others by entries that know who inserted a row, and that would be forgotten.
func (t Table) Ends() bool { return t == Seals }

// TableOf returns the table with a name; ok is false when this version has none.
func TableOf(name string) (t Table, ok bool) {
	for _, t := range Tables {
		if t.Name == name {
			return t, true
		}
	}
	return Table{}, false
}
