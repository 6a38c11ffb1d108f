package metadata_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/deliverytoken"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

func TestTokenKeys_AllGetTheFirstOnes(t *testing.T) {
	s := memory.New()
	defer s.Close()
	var wg sync.WaitGroup
	var got [8]deliverytoken.Keys
	var errs [8]error
	for i := range got {
		wg.Go(func() { got[i], errs[i] = metadata.TokenKeys(t.Context(), s, time.Now()) })
	}
	wg.Wait()
	again, err := metadata.TokenKeys(t.Context(), s, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if errs[i] != nil || got[i] != again || got[i].Current.IsZero() {
			t.Errorf("caller %d: error %v, same keys %v, none %v", i, errs[i], got[i] == again, got[i].Current.IsZero())
		}
	}
}

func TestTokenKeys_RefusesEmptySetting(t *testing.T) {
	s := memory.New()
	defer s.Close()
	if err := s.Insert(t.Context(), metadata.Settings, metadata.SettingKey("ack-token-keys"), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := metadata.TokenKeys(t.Context(), s, time.Now()); !errors.Is(err, core.ErrCorrupt) {
		t.Errorf("got %v, want corrupt: a zero key could be guessed", err)
	}
}
