// Package convert turns the control plane's protobuf messages into the nouns of core and back, at the edges only.
package convert

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// ErrorToProto keeps code, text and retry time; an error outside the catalogue becomes internal.
func ErrorToProto(err error) *pb.Error {
	if err == nil {
		return nil
	}
	out := &pb.Error{Code: string(core.CodeOf(err)), Text: err.Error()}
	var e *core.Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		out.RetryAfter = durationpb.New(e.RetryAfter)
	}
	return out
}

// ErrorFromProto is the reverse; nil for nil.
func ErrorFromProto(p *pb.Error) error {
	if p == nil {
		return nil
	}
	return &core.Error{Code: core.Code(p.Code), Text: p.Text, RetryAfter: p.RetryAfter.AsDuration()}
}

// FrameError decodes the body of an Error or Refused frame. A body that does not parse is itself the error.
func FrameError(body []byte) error {
	var p pb.Error
	if err := proto.Unmarshal(body, &p); err != nil {
		return core.Errorf(core.CodeBadFrame, "error frame does not parse: %w", err)
	}
	return ErrorFromProto(&p)
}

// RPCError dresses an error for Connect: a status that proxies and curl users understand, the catalogue's entry as
// detail. An error that is dressed already stays as it is.
func RPCError(err error) error {
	if err == nil {
		return nil
	}
	if dressed := (*connect.Error)(nil); errors.As(err, &dressed) && len(dressed.Details()) > 0 {
		return dressed
	}
	code := core.CodeOf(err)
	if errors.Is(err, context.DeadlineExceeded) {
		code = core.CodeDeadline
	}
	out := connect.NewError(status(code), err)
	p := ErrorToProto(err)
	p.Code = string(code)
	if d, derr := connect.NewErrorDetail(p); derr == nil {
		out.AddDetail(d)
	}
	return out
}

// FromRPC is the reverse. Without a detail the status decides: a broken connection is unavailable before the request
// was answered, so what it did is unknown only to calls that change something; their callers say so.
func FromRPC(err error) error {
	if err == nil {
		return nil
	}
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return core.Errorf(core.CodeUnavailable, "call: %w", err)
	}
	for _, d := range ce.Details() {
		v, derr := d.Value()
		if p, ok := v.(*pb.Error); derr == nil && ok {
			return ErrorFromProto(p)
		}
	}
	if OtherService(ce) {
		return core.Errorf(core.CodeUnavailable, "no host of Columba answers at the address called: %w", ce)
	}
	code := core.CodeInternal
	switch ce.Code() {
	case connect.CodeUnavailable:
		code = core.CodeUnavailable
	case connect.CodeDeadlineExceeded, connect.CodeCanceled:
		code = core.CodeDeadline
	case connect.CodeNotFound:
		code = core.CodeNotFound
	case connect.CodeUnimplemented:
		code = core.CodeUnimplemented
	case connect.CodeInvalidArgument:
		code = core.CodeBadArgument
	case connect.CodeResourceExhausted:
		code = core.CodeTooLarge
	}
	return core.Errorf(code, "call: %w", ce)
}

// OtherService reports whether a server that is no host of Columba answered a call, or a proxy before one: the answer
// has not the form of the protocol. The address of a host that is gone may become that of any HTTP server.
func OtherService(err *connect.Error) bool {
	if connect.IsWireError(err) {
		return false
	}
	switch err.Code() {
	case connect.CodeUnknown, connect.CodeInternal, connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeUnimplemented:
		return true
	}
	return false
}

func status(code core.Code) connect.Code {
	switch code {
	case core.CodeNotFound:
		return connect.CodeNotFound
	case core.CodeExists:
		return connect.CodeAlreadyExists
	case core.CodeConflict, core.CodeStale, core.CodeDisabled, core.CodeFenced, core.CodeGap, core.CodeLocked:
		return connect.CodeFailedPrecondition
	case core.CodeThrottled, core.CodeNoSpace:
		return connect.CodeResourceExhausted
	case core.CodeUnavailable, core.CodeNoMajority, core.CodeDraining, core.CodeMoved, core.CodeIncomplete, core.CodeReadOnly:
		return connect.CodeUnavailable
	case core.CodeDeadline:
		return connect.CodeDeadlineExceeded
	case core.CodeUnknown:
		return connect.CodeUnknown
	case core.CodeUnimplemented, core.CodeUnsupported:
		return connect.CodeUnimplemented
	case core.CodeCorrupt:
		return connect.CodeDataLoss
	case core.CodeInternal:
		return connect.CodeInternal
	case core.CodeBadToken:
		return connect.CodePermissionDenied
	}
	return connect.CodeInvalidArgument
}

// Duration reads an optional duration; unset is zero.
func Duration(d *durationpb.Duration) time.Duration { return d.AsDuration() }

// DurationToProto leaves zero unset.
func DurationToProto(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
