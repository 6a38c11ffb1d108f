package node

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/columbamq/columba/api/columbav1/columbav1connect"
)

// A call that nobody serves is answered like every other error of a call, in JSON and with the code of the catalogue.
func TestPages_CallsThatAreNotServed(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle(columbav1connect.NewAdminServiceHandler(columbav1connect.UnimplementedAdminServiceHandler{}))
	all := pages{&gated{mux: mux}}
	for path, says := range map[string]string{
		"/columba.v1.AdminService/Explode":     "there is no call of this name",
		"/columba.v1.AdminService/":            "there is no call of this name",
		"/columba.v1.NoService/GetQueue":       "there is no call of this name",
		"/columba.v1.MessageService/Publish":   "does not have the role",
		"/columba.v1.SeekGroupRequest/GetPath": "there is no call of this name",
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		all.ServeHTTP(w, r)
		var got struct {
			Code, Message string
			Details       []struct{ Debug struct{ Code string } }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Errorf("%s: %q is not JSON: %v", path, w.Body, err)
			continue
		}
		if w.Code != http.StatusNotImplemented || got.Code != "unimplemented" || !strings.Contains(got.Message, says) || len(got.Details) != 1 {
			t.Errorf("%s: %d, %s", path, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	all.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/nothing", nil))
	if w.Code != http.StatusNotFound || !strings.HasPrefix(w.Body.String(), "no such page") {
		t.Errorf("another page: %d, %s", w.Code, w.Body)
	}
}
