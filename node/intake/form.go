package intake

import (
	"mime"
	"strings"
	"sync"

	"github.com/columbamq/columba/core"
)

// form is how the body of a call is written.
type form struct {
	enveloped bool // the message is behind an envelopeHead
	json      bool // protobuf otherwise
}

// forms are those that the library decodes, by their content type in its canonical form.
var forms = sync.OnceValue(func() map[string]form {
	out := map[string]form{"application/grpc": {enveloped: true}, "application/grpc-web": {enveloped: true}}
	for prefix, enveloped := range map[string]bool{"application/": false, "application/connect+": true, "application/grpc+": true, "application/grpc-web+": true} {
		out[prefix+"proto"] = form{enveloped, false}
		out[prefix+"json"] = form{enveloped, true}
		out[prefix+"json; charset=utf-8"] = form{enveloped, true}
	}
	return out
})

// formOf finds the form of a content type, which the library compares without regard to case and spaces, and its
// canonical form. The request must carry that from then on: whatever decodes the body then reads the type that the body
// was weighed by.
func formOf(contentType string) (canonical string, f form, ok bool) {
	if f, ok = forms()[contentType]; ok {
		return contentType, f, true
	}
	base, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return "", form{}, false
	}
	if charset, has := params["charset"]; has {
		params["charset"] = strings.ToLower(charset)
	}
	canonical = mime.FormatMediaType(base, params)
	f, ok = forms()[canonical]
	return canonical, f, ok
}

// errForm is the reason of a body that nothing can decode.
var errForm = core.Errorf(core.CodeUnsupported, "the content type is none that calls have; send application/json, application/proto or application/grpc")
