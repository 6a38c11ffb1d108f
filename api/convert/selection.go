package convert

import (
	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// Selection reads a selection of dead letters; it is not validated, and ids that are none are zero. nil is all.
func Selection(p *pb.DeadLetterSelection) core.Selection {
	s := core.Selection{Reasons: p.GetReasons(), MinAttempts: int(p.GetMinAttempts()), MaxAttempts: int(p.GetMaxAttempts())}
	for _, text := range p.GetIds() {
		id, err := core.ParseID(text)
		if err != nil {
			id = core.ID{}
		}
		s.IDs = append(s.IDs, core.MessageID{ID: id})
	}
	if p.GetDeadBefore() != nil {
		s.DeadBefore = p.DeadBefore.AsTime()
	}
	if p.GetDeadAfter() != nil {
		s.DeadAfter = p.DeadAfter.AsTime()
	}
	return s
}

// SelectionToProto is the reverse of Selection.
func SelectionToProto(s core.Selection) *pb.DeadLetterSelection {
	if s.IsAll() {
		return nil
	}
	p := &pb.DeadLetterSelection{
		DeadBefore: Time(s.DeadBefore), DeadAfter: Time(s.DeadAfter), Reasons: s.Reasons, MinAttempts: uint32(s.MinAttempts), MaxAttempts: uint32(s.MaxAttempts),
	}
	for _, id := range s.IDs {
		p.Ids = append(p.Ids, id.String())
	}
	return p
}
