package cassandra

import (
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// state is what Cassandra has of a CAS row. A row that was deleted leaves a marker for markerTTL: a state that is not
// live. The zero state is a row without a trace. Versions of a row only grow, through all its lives, while there is a
// marker between them.
type state struct {
	version int64
	live    bool
	again   bool   // inserted over a marker: it is not the row's first life of the last day
	created string // attempt that inserted the row
	attempt string // attempt that changed the row last
	value   []byte
}

func (s state) none() bool { return s.version == 0 }

// verdict says what a store does after a change was not applied, or after its answer was lost.
type verdict uint8

const (
	done    verdict = iota // the change was applied
	retry                  // it was not applied until now: try the same attempt again
	over                   // insert over the marker that was found
	refused                // it was not applied and never will be; the error says why
	unsure                 // it may have been applied, and changed again since
)

// judgeInsert decides about an insert over base, the version of a marker, 0 = over nothing. first is the version that
// the row gets from it, found is the state after it. lost: the answer of an earlier try is not known.
//
//  1. An attempt that was applied cannot be applied again: its marker outlives any request.
//  2. Versions only grow. If the version is below first, this attempt was not applied. It never will be if the state is
//     another one than base.
//  3. If the row is in its first life, and another attempt inserted it, this attempt was not applied over nothing.
func judgeInsert(found state, base, first int64, mine string, lost bool) (verdict, core.Code) {
	switch {
	case found.created == mine:
		return done, ""
	case found.none(), lost && !found.live && found.version == base:
		return retry, ""
	case lost && found.version >= first && (base != 0 || found.again):
		return unsure, core.CodeUnknown // it may have been applied, deleted, and inserted again by another
	case found.live:
		return refused, core.CodeExists
	}
	return over, ""
}

// judgeChange decides about an update of a row at version old, or about its deletion. found is the state after it.
// lost: the answer of an earlier try is not known.
func judgeChange(found state, old int64, mine string, lost bool) (verdict, core.Code) {
	// Version old+1 is given once. If another attempt has it, this one was not applied.
	if found.attempt == mine {
		return done, ""
	}
	if found.live && found.version == old {
		return retry, ""
	}
	if lost && old > 0 && found.version > old+1 { // no row ever was at version 0
		return unsure, core.CodeUnknown
	}
	if found.live {
		return refused, core.CodeConflict
	}
	return refused, core.CodeNotFound
}

// row returns a live state as a row for readers.
func (s state) row(k metadata.Key) metadata.Row {
	return metadata.Row{Key: k, Value: s.value, Version: metadata.Version(s.version)}
}
