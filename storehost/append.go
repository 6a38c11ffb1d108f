package storehost

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// appendStream is the one append session that an extent has in its life. It ends with its connection and is never
// resumed.
//
//	opening ──header is durable──▶ open ──refused, closed, connection lost──▶ ended
//	   └───────────────refused, closed, connection lost────────────────────────▲
type appendStream struct {
	s      *session
	id     uint32
	extent core.ExtentID // of the reader goroutine; set by OpenAppend
	open   atomic.Bool
	ended  atomic.Bool
}

func newAppendStream(s *session, id uint32) *appendStream {
	s.h.metrics.appendStreams.Inc()
	return &appendStream{s: s, id: id}
}

// HandleFrame implements ws.StreamHandler.
func (a *appendStream) HandleFrame(f wire.Frame, m *ws.Message) {
	var err error
	switch f.Type {
	case wire.TypeOpenAppend:
		err = a.begin(f.Body)
	case wire.TypeAppend:
		err = a.append(f.Body, m)
	case wire.TypeCommitted:
		err = a.committed(f.Body)
	case wire.TypeCloseAppend:
		if a.end() {
			a.s.mux.Forget(a.id)
		}
	default:
		err = core.Errorf(core.CodeBadFrame, "unexpected frame %d on an append stream", f.Type)
	}
	if err != nil {
		a.refuse(err)
	}
}

// Closed implements ws.StreamHandler. The extent stays as it is; the controller fences it.
func (a *appendStream) Closed(error) { a.end() }

// end reports whether this call ended the stream.
func (a *appendStream) end() bool {
	if a.ended.Swap(true) {
		return false
	}
	a.s.h.metrics.appendStreams.Dec()
	return true
}

func (a *appendStream) refuse(err error) {
	if a.end() {
		a.s.h.remote.Info("append stream refused", telemetry.KeyPeer, a.s.mux.Conn.RemoteAddr(), telemetry.KeyExtent, a.extent, telemetry.KeyErr, err)
		a.s.refuse(a.id, err)
	}
}

// begin checks the request and writes the header on a goroutine of its own: the connection's reader must not wait for
// the disk.
func (a *appendStream) begin(body []byte) error {
	if !a.extent.IsZero() {
		return core.Errorf(core.CodeBadFrame, "the stream has an extent already")
	}
	var req pb.OpenAppend
	if err := proto.Unmarshal(body, &req); err != nil {
		return core.Errorf(core.CodeBadFrame, "open-append frame does not parse: %w", err)
	}
	extent, err := convert.Extent(req.Extent)
	if err != nil {
		return err
	}
	if err := a.s.h.checkWriter(extent, req.Expected); err != nil {
		return err
	}
	a.extent = extent.ID
	if a.s.opening.Add(1) > maxOpening {
		a.s.opening.Add(-1)
		return core.Errorf(core.CodeThrottled, "%d extents are being opened; try again", maxOpening)
	}
	err = a.s.mux.Begin(func(context.Context) {
		defer a.s.opening.Add(-1)
		a.finishOpen(extent)
	})
	if err != nil {
		a.s.opening.Add(-1)
	}
	return err
}

func (a *appendStream) finishOpen(extent core.Extent) {
	if err := a.s.log.Open(extent); err != nil {
		a.refuse(err)
		return
	}
	body, err := proto.Marshal(&pb.Opened{Identity: convert.IdentityToProto(a.s.log.Identity()), Window: extentlog.Window})
	if err != nil {
		a.refuse(core.Errorf(core.CodeInternal, "encode opened: %w", err))
		return
	}
	a.open.Store(true)
	if !a.ended.Load() {
		a.s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeOpened, a.id, body))
	}
}

// checkWriter refuses an extent that is not for this store, or not any more.
func (h *Host) checkWriter(extent core.Extent, expected *pb.StoreIdentity) error {
	if err := h.admits(); err != nil {
		return err
	}
	if err := h.checkIdentity(expected); err != nil {
		return err
	}
	log, err := h.extents()
	if err != nil {
		return err
	}
	is := log.Identity()
	if !slices.Contains(extent.Replicas, is.Store) {
		return core.Errorf(core.CodeConflict, "store %s is not in the replica set of extent %s", is.Store, extent.ID)
	}
	if disk := extent.Disk(is.Store); !disk.IsZero() && disk != is.Disk {
		return otherDisk(is, disk)
	}
	return nil
}

// append verifies a batch and gives it to the log; the answer comes later, from the log's goroutine.
func (a *appendStream) append(body []byte, m *ws.Message) error {
	if !a.open.Load() {
		return core.Errorf(core.CodeBadFrame, "append before the store answered that extent %s is open", a.extent)
	}
	committed, bytes, err := wire.DecodeAppend(body)
	if err != nil {
		return err
	}
	batch, err := wire.DecodeBatch(bytes)
	if err != nil {
		return err
	}
	count, err := wire.CheckRecords(batch.Records, wire.MaxPayload)
	if err != nil {
		return err
	}
	if count != int(batch.Count) {
		return core.Errorf(core.CodeBadRecord, "batch at %d says %d records and holds %d", batch.Base, batch.Count, count)
	}
	a.s.log.AwaitRoom(a.s.h.ctx) // the peer's sends wait, too, then its publishers: nothing of that fails
	m.Retain()
	f := newFlight()
	f.stream, f.message, f.size, f.arrived = a, m, len(bytes), time.Now()
	a.s.log.Append(a.extent, bytes, committed, f.done)
	return nil
}

// flight is an append that waits for the log. It is pooled with its callback, so that no message costs an allocation.
type flight struct {
	stream  *appendStream
	message *ws.Message // keeps the batch
	size    int
	arrived time.Time
	done    extentlog.Appended
}

var flights sync.Pool

func newFlight() *flight {
	f, _ := flights.Get().(*flight)
	if f == nil {
		f = new(flight)
		f.done = f.land
	}
	return f
}

// land is called once, by the log.
func (f *flight) land(durable core.Seq, err error) {
	a, size, arrived := f.stream, f.size, f.arrived
	f.message.Release()
	f.stream, f.message = nil, nil
	flights.Put(f)
	if err != nil {
		a.refuse(err)
		return
	}
	if !a.ended.Load() {
		a.s.position(wire.TypeAppendAck, a.id, uint64(durable))
	}
	mt := a.s.h.metrics
	mt.appends.Inc()
	mt.appendBytes.Add(float64(size))
	mt.appendSeconds.Observe(time.Since(arrived).Seconds())
}

func (a *appendStream) committed(body []byte) error {
	if !a.open.Load() {
		return core.Errorf(core.CodeBadFrame, "committed before the extent is open")
	}
	seq, err := wire.DecodePosition(body)
	if err != nil {
		return err
	}
	a.s.log.Commit(a.extent, core.Seq(seq))
	return nil
}
