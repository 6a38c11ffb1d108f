package storehost

import (
	"context"
	"encoding/binary"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// FuzzStoreSession sends a store sequences of frames on up to four streams of one connection: the store goes on to
// serve another connection, and after the end of this one no stream of it is left.
func FuzzStoreSession(f *testing.F) {
	frame := func(t wire.FrameType, stream byte, body []byte) []byte {
		return append([]byte{byte(t), stream, byte(len(body)), byte(len(body) >> 8)}, body...)
	}
	marshal := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	store := startStore(f, "a")
	e := convert.ExtentToProto(extent("a"))
	openAppend := frame(wire.TypeOpenAppend, 1, marshal(&pb.OpenAppend{Extent: e}))
	openRead := frame(wire.TypeOpenRead, 2, marshal(&pb.OpenRead{Extent: e, From: 1, Credit: 1 << 20}))
	for _, then := range [][]byte{
		openRead, openAppend, frame(wire.TypeAppend, 1, make([]byte, 100)), frame(wire.TypeCommitted, 1, wire.AppendPosition(nil, 7)),
		frame(wire.TypeCloseAppend, 1, nil), frame(wire.TypeReadCredit, 1, wire.AppendPosition(nil, 1<<63)), frame(wire.TypeConsumeHello, 1, nil),
	} {
		f.Add(append(openAppend[:len(openAppend):len(openAppend)], then...))
		f.Add(append(openRead[:len(openRead):len(openRead)], then...))
	}
	f.Fuzz(func(t *testing.T, frames []byte) {
		s := *store
		s.t = t
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		l := s.dial()
		for sent := 0; len(frames) >= 4 && sent < 64; sent++ {
			n := min(int(binary.LittleEndian.Uint16(frames[2:])), len(frames)-4)
			if l.mux.Conn.Send(ctx, wire.AppendFrame(nil, wire.FrameType(frames[0]), uint32(frames[1]%4)+1, frames[4:4+n])) != nil {
				break // the store ended the connection, as it may
			}
			frames = frames[4+n:]
		}
		other := s.dial().openRead(extent("a"), 1, 1)
		other.expectRefused(core.CodeNotFound)
		l.drop()
		eventually(t, "no extent counts a reader of the connection that has ended", func() bool {
			store.host.readers.mu.Lock()
			defer store.host.readers.mu.Unlock()
			return len(store.host.readers.byExtent) == 0
		})
	})
}
