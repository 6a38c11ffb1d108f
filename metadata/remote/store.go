// Package remote owns the metadata.Store of a process that reaches the store of another process over Connect, and the
// handler that serves it there.
package remote

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// maxWrite bounds the bytes of one call of PutAll.
const maxWrite = 2 << 20

// Store asks the store of another process. Safe for concurrent use. A write whose answer does not arrive is
// CodeUnknown, but for one that never left this process.
type Store struct {
	rpc      columbav1connect.MetadataServiceClient
	base     string
	ctx      context.Context // ends with Close
	stop     context.CancelCauseFunc
	copied   func() bool // whether the server's store has several copies; nil: it has not
	majority metadata.Majority
}

var (
	_ metadata.Store  = (*Store)(nil)
	_ metadata.Copied = (*Store)(nil)
)

// Majority implements metadata.Copied.
func (s *Store) Majority() *metadata.Majority {
	if s.copied == nil || !s.copied() {
		return nil
	}
	return &s.majority
}

var errClosed = core.Errorf(core.CodeUnavailable, "metadata store is closed")

// New makes a store that asks the server at the base URL; it does no I/O. The client must not have a timeout of its
// own: watches last.
func New(client connect.HTTPClient, base string, opts ...connect.ClientOption) *Store {
	// Rows are small and the network is near: to compress them costs more than all else of a call.
	opts = append([]connect.ClientOption{connect.WithReadMaxBytes(2 * maxRequest), connect.WithAcceptCompression("gzip", nil, nil)}, opts...)
	s := &Store{rpc: columbav1connect.NewMetadataServiceClient(client, base, opts...), base: base}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	return s
}

// NewLocated is New for a server that may move: locate says before each call where it is, host:port. Its error,
// CodeUnavailable as a rule, is what the call fails with, at once. copied says whether the store there has several
// copies now.
func NewLocated(client connect.HTTPClient, locate func() (addr string, err error), copied func() bool, opts ...connect.ClientOption) *Store {
	s := New(located{client, locate}, "http://metadata", opts...)
	s.base, s.copied = "the host that holds them", copied
	return s
}

// located sends each request to where the server is.
type located struct {
	client connect.HTTPClient
	locate func() (addr string, err error)
}

// nowhere is why a request was not sent: it is not known where to.
type nowhere struct{ error }

func (n nowhere) Unwrap() error { return n.error }

func (l located) Do(req *http.Request) (*http.Response, error) {
	addr, err := l.locate()
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // as every http.Client does
		}
		return nil, nowhere{err}
	}
	req = req.WithContext(req.Context()) // a copy, with an URL of its own
	u := *req.URL
	u.Host = addr
	req.URL, req.Host = &u, addr
	return l.client.Do(req)
}

// Close implements metadata.Store. The HTTP client stays the caller's.
func (s *Store) Close() error {
	s.stop(errClosed)
	return nil
}

// Get implements metadata.Store.
func (s *Store) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if err := metadata.CheckKey(t, k); err != nil {
		return metadata.Row{}, err
	}
	resp, err := call(ctx, s, false, s.rpc.GetRow, &pb.GetRowRequest{
		Table: tableToProto(t), Partition: []byte(k.Partition), Row: []byte(k.Row), Consistency: consistencyToProto(c),
	})
	if err != nil {
		return metadata.Row{}, err
	}
	return rowFromProto(resp), nil
}

// List implements metadata.Store.
func (s *Store) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if err := metadata.CheckList(t, partition, after, limit); err != nil {
		return nil, false, err
	}
	resp, err := call(ctx, s, false, s.rpc.ListRows, &pb.ListRowsRequest{
		Table: tableToProto(t), Partition: []byte(partition), After: []byte(after), Limit: int32(min(limit, maxPageRows)),
		Consistency: consistencyToProto(c),
	})
	if err != nil {
		return nil, false, err
	}
	rows := make([]metadata.Row, len(resp.Rows))
	for i, p := range resp.Rows {
		rows[i] = rowFromProto(p)
	}
	return rows, resp.More, nil
}

// Insert implements metadata.Store.
func (s *Store) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	return s.change(ctx, pb.RowChange_ROW_CHANGE_INSERT, t, metadata.Row{Key: k, Value: value}, 0)
}

// Update implements metadata.Store.
func (s *Store) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	if err := metadata.CheckUpdate(t, k, value, ttl); err != nil {
		return err
	}
	return s.change(ctx, pb.RowChange_ROW_CHANGE_UPDATE, t, metadata.Row{Key: k, Value: value, Version: old}, ttl)
}

// Delete implements metadata.Store.
func (s *Store) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	return s.change(ctx, pb.RowChange_ROW_CHANGE_DELETE, t, metadata.Row{Key: k, Version: old}, 0)
}

func (s *Store) change(ctx context.Context, kind pb.RowChange, t metadata.Table, row metadata.Row, ttl time.Duration) error {
	if err := metadata.CheckWrite(t, metadata.RuleCAS, row.Key, row.Value); err != nil {
		return err
	}
	_, err := call(ctx, s, true, s.rpc.ChangeRow, &pb.ChangeRowRequest{Table: tableToProto(t), Change: kind, Row: rowToProto(row), Ttl: convert.DurationToProto(ttl)})
	return err
}

// Put implements metadata.Store.
func (s *Store) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	return s.put(ctx, t, []metadata.Row{{Key: k, Value: value, Written: at}}, &pb.PutRowsRequest{Ttl: convert.DurationToProto(ttl)}, c)
}

// Remove implements metadata.Store.
func (s *Store) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	return s.put(ctx, t, []metadata.Row{{Key: k, Written: at}}, &pb.PutRowsRequest{Remove: true}, c)
}

// PutAll implements metadata.Store with one call per 2 MiB.
func (s *Store) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	for _, r := range rows {
		if err := metadata.CheckPut(t, r.Key, r.Value, r.Written); err != nil {
			return err
		}
	}
	ctx, cancel := metadata.Deadline(ctx)
	defer cancel()
	first, size := 0, 0
	for i, r := range rows {
		size += len(r.Value) + len(r.Key.Partition) + len(r.Key.Row)
		if size < maxWrite && i < len(rows)-1 {
			continue
		}
		if err := s.put(ctx, t, rows[first:i+1], &pb.PutRowsRequest{}, c); err != nil {
			return metadata.UnstoredFrom(first, len(rows), err)
		}
		first, size = i+1, 0
	}
	return nil
}

func (s *Store) put(ctx context.Context, t metadata.Table, rows []metadata.Row, req *pb.PutRowsRequest, c metadata.Consistency) error {
	req.Table, req.Consistency = tableToProto(t), consistencyToProto(c)
	for _, r := range rows {
		if err := metadata.CheckPut(t, r.Key, r.Value, r.Written); err != nil {
			return err
		}
		req.Rows = append(req.Rows, rowToProto(r))
	}
	_, err := call(ctx, s, true, s.rpc.PutRows, req)
	return err
}

// call does one RPC within the deadline; write says that a lost answer leaves the outcome open.
func call[Req, Resp any](ctx context.Context, s *Store, write bool, rpc func(context.Context, *connect.Request[Req]) (*connect.Response[Resp], error), req *Req) (*Resp, error) {
	ctx, cancel := metadata.Deadline(ctx)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(s.ctx, func() { end(errClosed) })()
	if s.ctx.Err() != nil {
		return nil, errClosed
	}
	if ctx.Err() != nil {
		return nil, core.Errorf(core.CodeUnavailable, "metadata was not asked: %w", context.Cause(ctx))
	}
	resp, err := rpc(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, s.answer(err, write)
	}
	return resp.Msg, nil
}

// answer turns what an RPC returned into the store's error.
func (s *Store) answer(err error, write bool) error {
	var e *connect.Error
	var n nowhere
	if errors.As(err, &n) {
		return n.error
	}
	said := errors.As(err, &e) && len(e.Details()) > 0 // the other store's own words
	err = convert.FromRPC(err)
	code := core.CodeOf(err)
	switch {
	case said && code != core.CodeDeadline:
		return err
	case !write || !said && neverSent(err):
		return core.Errorf(core.CodeUnavailable, "metadata at %s: %w", s.base, err)
	}
	return core.Errorf(core.CodeUnknown, "metadata at %s did not answer: %w", s.base, err)
}

// neverSent reports whether the connection was not even made.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
