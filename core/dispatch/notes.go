package dispatch

import (
	"bytes"
	"time"
	"unicode/utf8"

	"github.com/columbamq/columba/core"
)

// Consumers leave a text with a message that failed, and metadata in place of its own. A share keeps both until the message is gone; while the retry queue
// takes nothing that may be long.

// MaxNoteBytes bounds the bytes of texts and metadata of a share. Above it Replace refuses.
const MaxNoteBytes = 32 << 20

// errNotes is what a nack or a rejection gets that leaves metadata for which there is no room.
var errNotes = core.Errorf(core.CodeThrottled, "messages with new metadata wait for the retry queue, and more of them do not fit; try again later, or without metadata")

// Replace has the metadata of a message replaced with the nack, or the rejection, that follows. It is copied. CodeStale like Nack, CodeThrottled above MaxNoteBytes.
func (s *Share) Replace(seq core.Seq, attempt uint16, metadata []byte, now time.Time) error {
	s.group.at(now)
	switch {
	case s.current(seq, attempt) == nil:
		return s.stale()
	case len(metadata) > core.MaxMetadata:
		return core.Errorf(core.CodeTooLarge, "metadata has %d bytes; at most %d may be left with a message", len(metadata), core.MaxMetadata)
	case s.noteBytes+len(metadata)-len(s.metadataOf(seq)) > MaxNoteBytes:
		return errNotes
	}
	s.keepMetadata(seq, bytes.Clone(metadata))
	return nil
}

// keep notes the text of a message. Most shares never have one: the map is made with the first.
func (s *Share) keep(seq core.Seq, text string) {
	if s.texts == nil {
		s.texts = make(map[core.Seq]string)
	}
	s.noteBytes += len(text) - len(s.texts[seq])
	s.texts[seq] = text
}

func (s *Share) forgetText(seq core.Seq) {
	s.noteBytes -= len(s.texts[seq])
	delete(s.texts, seq)
}

// keepMetadata has metadata replace those of a message.
func (s *Share) keepMetadata(seq core.Seq, metadata []byte) {
	x := s.transferOf(seq)
	s.noteBytes += len(metadata) - len(x.metadata)
	s.touch()
	x.metadata = metadata
}

// metadataOf are those that replace the message's own.
func (s *Share) metadataOf(seq core.Seq) []byte {
	if x := s.records[seq]; x != nil {
		return x.metadata
	}
	return nil
}

func (s *Share) forgetTransfer(seq core.Seq) {
	s.noteBytes -= len(s.metadataOf(seq))
	delete(s.records, seq)
}

// clip copies text, cut to most bytes at the end of a rune.
func clip(text []byte, most int) string {
	if len(text) <= most {
		return string(text)
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return string(text[:most])
}
