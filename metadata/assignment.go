package metadata

import (
	"bytes"
	"cmp"
	"context"

	"github.com/columbamq/columba/core"
)

// AssignmentRecord gives a (group, extent) to an output host. Of several for one share the highest Precedence counts.
type AssignmentRecord struct {
	Group   core.GroupID `json:"group"`
	Queue   core.QueueID `json:"queue"`
	Name    string       `json:"name"` // of the group
	Extent  core.Extent  `json:"extent"`
	Counter uint64       `json:"counter"`
	By      core.HostID  `json:"by"`     // the controller that decided …
	ByRun   core.RunID   `json:"by_run"` // … and its run; zero: the row is from before rows named it
	Owner   core.HostID  `json:"owner"`
	Run     core.RunID   `json:"run"`
	From    core.HostID  `json:"from,omitempty"` // who may still have the share when it is decided …
	FromRun core.RunID   `json:"from_run"`       // … and its run; zero: nobody, or the row is from before rows named it
}

// Precedence orders the decisions about one share: the highest counts, for every reader.
type Precedence struct {
	Counter uint64
	By      core.HostID
	Run     core.RunID // of By
}

// Precedence of the decision among those about the same share.
func (r AssignmentRecord) Precedence() Precedence { return Precedence{r.Counter, r.By, r.ByRun} }

// Compare is positive when p counts, and o does not.
func (p Precedence) Compare(o Precedence) int {
	return cmp.Or(cmp.Compare(p.Counter, o.Counter), cmp.Compare(p.By, o.By), bytes.Compare(p.Run.ID[:], o.Run.ID[:]))
}

// Assigned reads the decisions that count about a group's shares, by extent.
func Assigned(ctx context.Context, s Store, group core.GroupID, c Consistency) (map[core.ExtentID]AssignmentRecord, error) {
	out := make(map[core.ExtentID]AssignmentRecord)
	for a, err := range All[AssignmentRecord](ctx, s, Assignments, group.String(), c) {
		if err != nil {
			return nil, err
		}
		if old, ok := out[a.Value.Extent.ID]; !ok || a.Value.Precedence().Compare(old.Precedence()) > 0 {
			out[a.Value.Extent.ID] = a.Value
		}
	}
	return out, nil
}

// ClaimRecord has the done seqs of a share in an at-most-once group, including those that its owner may deliver now. It
// has one owner at a time: the next owner of the share writes its term first, and from then on the owner before cannot
// change the record.
type ClaimRecord struct {
	Owner core.RunID `json:"owner"`
	Term  core.ID    `json:"term"` // of this ownership
	State []byte     `json:"state"`
}
