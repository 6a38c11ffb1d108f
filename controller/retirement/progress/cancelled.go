package progress

import (
	"context"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/cancel"
	"github.com/columbamq/columba/metadata"
)

// ForgetCancelled removes what was cancelled of an extent that is gone.
func ForgetCancelled(ctx context.Context, meta metadata.Store, extent core.ExtentID) error {
	key := metadata.CancelKey(extent)
	_, version, err := metadata.Read[cancel.Book](ctx, meta, metadata.Cancels, key, metadata.Serial)
	if err == nil {
		err = metadata.Delete(ctx, meta, metadata.Cancels, key, version)
	}
	if core.CodeOf(err) == core.CodeNotFound {
		return nil
	}
	return err
}
