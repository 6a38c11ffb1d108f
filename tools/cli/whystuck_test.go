package cli

import (
	"strings"
	"testing"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core/stuck"
)

// TestWhyStuck_CommandsNameTheGroup: a command of the text can be pasted.
func TestWhyStuck_CommandsNameTheGroup(t *testing.T) {
	for _, r := range stuck.Reasons() {
		for _, f := range whyStuckFields(&pb.WhyStuckResponse{Queue: "/t/a", Group: "work", Text: r.Text()}, false) {
			text, _ := f.value.(string)
			if strings.Contains(text, "QUEUE") || strings.Contains(text, "GROUP") {
				t.Errorf("%s of %s: %s", f.name, r, text)
			}
		}
	}
}
