package convert

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// TestFromRPC_AnswerOfAnotherService: the address of a host that is gone may become that of any HTTP server. Its answer
// is no answer of the host.
func TestFromRPC_AnswerOfAnotherService(t *testing.T) {
	for _, status := range []int{200, 204, 301, 400, 401, 403, 404, 405, 500, 501, 503} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
			if status != http.StatusNoContent {
				_, _ = w.Write([]byte("<p>welcome</p>")) // the status is what the test is about
			}
		}))
		err := call(s)
		if core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("status %d: got %v (%s), want unavailable", status, err, core.CodeOf(err))
		}
		s.Close()
	}
}

// TestFromRPC_AnswerOfAHost keeps the codes that a host sends without an entry of the catalogue.
func TestFromRPC_AnswerOfAHost(t *testing.T) {
	for code, want := range map[connect.Code]core.Code{
		connect.CodeUnknown: core.CodeInternal, connect.CodeInternal: core.CodeInternal, connect.CodeUnimplemented: core.CodeUnimplemented,
		connect.CodeNotFound: core.CodeNotFound, connect.CodeInvalidArgument: core.CodeBadArgument,
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = connect.NewErrorWriter().Write(w, r, connect.NewError(code, errors.New("so"))) // what is lost fails the test
		}))
		if err := call(s); core.CodeOf(err) != want {
			t.Errorf("%s: got %v (%s), want %s", code, err, core.CodeOf(err), want)
		}
		s.Close()
	}
}

func call(s *httptest.Server) error {
	client := connect.NewClient[pb.GetDepthRequest, pb.GetDepthResponse](s.Client(), s.URL+"/columba.v1.OutputService/GetDepth")
	_, err := client.CallUnary(context.Background(), connect.NewRequest(&pb.GetDepthRequest{}))
	return FromRPC(err)
}
