package metadatatest

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// leaseTTL in seconds of the history's clock, which goes on by one second a call.
const leaseTTL = 4

type leaseCall struct {
	call   string
	holder int
	epoch  uint64 // of the holding that is renewed or released
	now    int64
}

type leaseAnswer struct {
	code    core.Code
	epoch   uint64
	expires int64
}

// leaseHistory races the holders of one lease.
func leaseHistory(t *testing.T, s metadata.Store, seed uint64) {
	h := newHistory()
	var clock atomic.Int64
	clients(historyClients, func(client int) {
		die := rand.New(rand.NewPCG(seed, uint64(client)))
		host := core.HostID(fmt.Sprint("host", client))
		held := metadata.LeaseRecord{Name: "work", Holder: host}
		for range historyCalls {
			in := leaseCall{call: "acquire", holder: client, epoch: held.Epoch, now: clock.Add(1)}
			if held.Epoch > 0 {
				in.call = []string{"acquire", "renew", "renew", "release"}[die.IntN(4)]
			}
			now := time.Unix(in.now, 0)
			h.record(client, in, func() (any, error) {
				l, err := held, error(nil)
				switch in.call {
				case "acquire":
					l, err = metadata.AcquireLease(t.Context(), s, "work", host, core.RunID{}, now, leaseTTL*time.Second)
				case "renew":
					l, err = metadata.RenewLease(t.Context(), s, held, now, leaseTTL*time.Second)
				case "release":
					err = metadata.ReleaseLease(t.Context(), s, held)
				}
				if err != nil {
					return leaseAnswer{code: core.CodeOf(err)}, err
				}
				held = l
				return leaseAnswer{epoch: l.Epoch, expires: l.Expires.Unix()}, nil
			})
		}
	})
	h.check(t, leaseModel())
}

// leaseModel is one lease; holder -1 has never had it, expires 0 is free.
func leaseModel() porcupine.Model {
	type state struct {
		holder  int
		epoch   uint64
		expires int64
	}
	next := func(st state, in leaseCall) (state, core.Code) {
		mine := st.holder == in.holder && st.epoch == in.epoch && st.expires > 0
		switch {
		case in.call == "release" && mine:
			return state{st.holder, st.epoch, 0}, ""
		case in.call == "release":
			return st, ""
		case in.call == "renew" && !mine:
			return st, core.CodeFenced
		case in.call == "acquire" && in.now < st.expires && st.holder != in.holder:
			return st, core.CodeConflict
		case in.call == "acquire" && in.now >= st.expires:
			return state{in.holder, st.epoch + 1, in.now + leaseTTL}, ""
		}
		return state{st.holder, st.epoch, max(st.expires, in.now+leaseTTL)}, ""
	}
	return porcupine.Model{
		Init: func() any { return state{holder: -1} },
		Step: func(current, input, output any) (bool, any) {
			st, in, out := current.(state), input.(leaseCall), output.(leaseAnswer)
			if out.code == core.CodeUnavailable {
				return true, st
			}
			after, code := next(st, in)
			if out.code == core.CodeUnknown {
				return true, after
			}
			granted := out.code != "" || in.call == "release" || out.epoch == after.epoch && out.expires == after.expires
			return code == out.code && granted, after
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	}
}
