package client

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// TestConnect_WithoutAMajority: a publisher and a consumer that cannot connect in an outage of the metadata have the
// code of that outage.
func TestConnect_WithoutAMajority(t *testing.T) {
	f := startFake(t, &fake{route: func() ([]*pb.HostAddress, error) {
		return nil, core.Errorf(core.CodeNoMajority, "no majority of the metadata answers")
	}})
	c := dial(t, f)
	for what, open := range map[string]func(context.Context) error{
		"publisher": func(ctx context.Context) error { _, err := c.Publisher(ctx, "/t/a"); return err },
		"consumer":  func(ctx context.Context) error { _, err := c.Consumer(ctx, "/t/a", "g"); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err := open(ctx)
		cancel()
		if core.CodeOf(err) != core.CodeNoMajority || !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
