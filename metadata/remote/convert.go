package remote

import (
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

func tableToProto(t metadata.Table) *pb.Table {
	rule := pb.TableRule_TABLE_RULE_CAS
	if t.Rule == metadata.RulePut {
		rule = pb.TableRule_TABLE_RULE_PUT
	}
	return &pb.Table{Name: t.Name, Rule: rule}
}

// tableFromProto reads a table, which another version may know alone. A table that this version knows has its rule:
// rows that change by two rules lose changes.
func tableFromProto(p *pb.Table) (t metadata.Table, err error) {
	switch p.GetRule() {
	case pb.TableRule_TABLE_RULE_CAS:
		t = metadata.Table{Name: p.Name, Rule: metadata.RuleCAS}
	case pb.TableRule_TABLE_RULE_PUT:
		t = metadata.Table{Name: p.Name, Rule: metadata.RulePut}
	default:
		return t, core.Errorf(core.CodeBadArgument, "table %.80q has no rule this version knows", p.GetName())
	}
	if known, ok := metadata.TableOf(t.Name); ok && known != t {
		return t, core.Errorf(core.CodeBadArgument, "rows of table %s change by another rule", t.Name)
	}
	return t, nil
}

func consistencyToProto(c metadata.Consistency) pb.ReadConsistency {
	switch c {
	case metadata.One:
		return pb.ReadConsistency_READ_CONSISTENCY_ONE
	case metadata.Quorum:
		return pb.ReadConsistency_READ_CONSISTENCY_QUORUM
	}
	return pb.ReadConsistency_READ_CONSISTENCY_SERIAL
}

// consistencyFromProto takes what it does not know for the strictest.
func consistencyFromProto(c pb.ReadConsistency) metadata.Consistency {
	switch c {
	case pb.ReadConsistency_READ_CONSISTENCY_ONE:
		return metadata.One
	case pb.ReadConsistency_READ_CONSISTENCY_QUORUM:
		return metadata.Quorum
	}
	return metadata.Serial
}

func rowToProto(r metadata.Row) *pb.Row {
	out := &pb.Row{
		Partition: []byte(r.Key.Partition), Row: []byte(r.Key.Row),
		Value: r.Value, Version: uint64(r.Version),
	}
	if !r.Written.IsZero() {
		out.Written = r.Written.UnixMicro()
	}
	return out
}

func rowFromProto(p *pb.Row) metadata.Row {
	r := metadata.Row{
		Key:   metadata.Key{Partition: string(p.GetPartition()), Row: string(p.GetRow())},
		Value: p.GetValue(), Version: metadata.Version(p.GetVersion()),
	}
	if p.GetWritten() != 0 {
		r.Written = time.UnixMicro(p.GetWritten())
	}
	return r
}
