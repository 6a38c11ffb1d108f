package serving_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/internal/serving"
)

// panicked is where a process of this test binary says what of it is to panic.
const panicked = "COLUMBA_TEST_PANIC"

func TestEndOnPanic(t *testing.T) {
	if what := os.Getenv(panicked); what != "" {
		panicInServer(t, what)
		return
	}
	for _, what := range []string{"page", "call", "call over HTTP/2"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEndOnPanic$")
			cmd.Env = append(os.Environ(), panicked+"="+what)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 2 {
				t.Fatalf("the process ended with %v, want exit code 2:\n%s", err, out)
			}
			for _, want := range []string{"a request of", "no extent", "_test.go"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("its output lacks %q:\n%s", want, out)
				}
			}
		})
	}
}

// panicInServer serves handlers that panic, and asks one of them.
func panicInServer(t *testing.T, what string) {
	mux := http.NewServeMux()
	mux.HandleFunc("/page", func(http.ResponseWriter, *http.Request) { panic("no extent") })
	mux.Handle(serving.Handler(columbav1connect.NewStoreServiceHandler, columbav1connect.StoreServiceHandler(store{}), serving.Options{Request: limit}))
	server := httptest.NewUnstartedServer(serving.EndOnPanic(mux))
	server.EnableHTTP2 = true
	protocol := server.StartTLS
	if what == "page" || what == "call" {
		protocol = server.Start
	}
	protocol()
	var err error
	if what == "page" {
		_, err = server.Client().Get(server.URL + "/page")
	} else {
		_, err = columbav1connect.NewStoreServiceClient(server.Client(), server.URL).GetReplica(t.Context(), connect.NewRequest(&pb.GetReplicaRequest{}))
	}
	fmt.Println("the server goes on after a panic:", err)
	os.Exit(1)
}

// A handler that breaks off its answer by http.ErrAbortHandler ends its connection alone.
func TestEndOnPanic_AbortedAnswer(t *testing.T) {
	server := httptest.NewServer(serving.EndOnPanic(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "whole")
	})))
	defer server.Close()
	if res, err := server.Client().Get(server.URL + "/abort"); err == nil {
		res.Body.Close()
		t.Errorf("an aborted answer has status %s, want an error", res.Status)
	}
	res, err := server.Client().Get(server.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); string(body) != "whole" || err != nil {
		t.Errorf("the next answer is %q (%v)", body, err)
	}
}
