package node

import (
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// procedures is the beginning of the paths of all calls.
const procedures = "/columba.v1."

// notServed is why a call cannot be served: no service has its procedure, or served is false. It is nil for everything
// else.
func notServed(r *http.Request, served bool) error {
	if !strings.HasPrefix(r.URL.Path, procedures) {
		return nil
	}
	service, method, _ := strings.Cut(r.URL.Path[1:], "/")
	d, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	known, is := d.(protoreflect.ServiceDescriptor)
	switch {
	case !is || known.Methods().ByName(protoreflect.Name(method)) == nil:
		return core.Errorf(core.CodeUnimplemented, "there is no call of this name; check its spelling, or use a later version of the server")
	case !served:
		return core.Errorf(core.CodeUnimplemented, "this server does not have the role for %s; call one with the role frontend", service)
	}
	return nil
}

// callErrors writes errors of calls that no service has answered, as the services write theirs.
var callErrors = connect.NewErrorWriter()

// refuse answers a call with an error.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	_ = callErrors.Write(w, r, convert.RPCError(err)) // a client that does not take its answer is gone
}
