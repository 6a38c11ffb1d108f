package frontend

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// post sends JSON as a person with curl would.
func (c *harness) post(path, body string) (status int, answer string) {
	c.t.Helper()
	resp, err := http.Post(c.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestJSON_UnknownFieldIsRefused(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	status, answer := c.post("/columba.v1.MessageService/Publish", `{"queue":"/t/a","messages":[{"paylod":"YQ=="}]}`)
	if status != http.StatusBadRequest || !strings.Contains(answer, "paylod") {
		t.Errorf("misspelt field: %d %s", status, answer)
	}
	if status, answer = c.post("/columba.v1.AdminService/GetQueue", `{"path":"/t/a"}`); status != http.StatusOK {
		t.Errorf("right call: %d %s", status, answer)
	}
	if status, _ = c.post("/columba.v1.AdminService/GetQueue", ""); status != http.StatusBadRequest {
		t.Errorf("empty body: %d", status)
	}
}

func TestJSON_LargeBodyIsFinal(t *testing.T) {
	c := newHarness(t, nil)
	status, answer := c.post("/columba.v1.MessageService/Publish", strings.Repeat(" ", DefaultConfig().MaxRequest+1))
	if status != http.StatusBadRequest || !strings.Contains(answer, "too_large") {
		t.Errorf("%d %s", status, answer)
	}
}

// TestJSON_TokenThatIsNoTextIsRefusedAlone settles the good one.
func TestJSON_TokenThatIsNoTextIsRefusedAlone(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	good := c.token(g, newExtent(g), 1)
	status, answer := c.post("/columba.v1.MessageService/Ack", `{"tokens":["`+good+`","`+"\xff\xfe"+`"]}`)
	if status != http.StatusOK || strings.Count(answer, "bad_token") != 1 || strings.Contains(answer, good) {
		t.Errorf("%d %s; want one bad token", status, answer)
	}
	if n := len(c.out.settled()); n != 1 {
		t.Errorf("%d calls to the owner, want the good token's", n)
	}
	if status, answer = c.post("/columba.v1.AdminService/GetQueue", "{\"path\":\"\xff\"}"); status != http.StatusBadRequest {
		t.Errorf("other calls: %d %s", status, answer)
	}
}
