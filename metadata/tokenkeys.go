package metadata

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/deliverytoken"
)

// TokenKeysRecord is the cluster's setting of that name: the keys of its delivery tokens.
type TokenKeysRecord struct {
	deliverytoken.Keys
	Made time.Time `json:"made"` // the current key
}

const settingTokenKeys = "ack-token-keys"

// TokenKeys reads the keys that seal and open the cluster's delivery tokens. The first to ask makes the first key.
func TokenKeys(ctx context.Context, s Store, now time.Time) (deliverytoken.Keys, error) {
	key := SettingKey(settingTokenKeys)
	r, _, err := Read[TokenKeysRecord](ctx, s, Settings, key, Serial)
	if core.CodeOf(err) == core.CodeNotFound {
		r = TokenKeysRecord{Keys: deliverytoken.Keys{Current: deliverytoken.NewKey()}, Made: now}
		if err = Create(ctx, s, Settings, key, r); core.CodeOf(err) == core.CodeExists {
			r, _, err = Read[TokenKeysRecord](ctx, s, Settings, key, Serial)
		}
	}
	switch {
	case err != nil:
		return deliverytoken.Keys{}, core.Errorf(core.CodeOf(err), "keys of delivery tokens: %w", err)
	case r.Current.IsZero():
		return deliverytoken.Keys{}, core.Errorf(core.CodeCorrupt, "keys of delivery tokens: the setting %s holds no current key", settingTokenKeys)
	}
	return r.Keys, nil
}
