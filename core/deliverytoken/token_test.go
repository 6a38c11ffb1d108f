package deliverytoken

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
)

func sample() Token {
	now := time.UnixMilli(1_790_000_000_000)
	return Token{
		Queue: core.QueueID{ID: core.NewID(now)}, Group: core.GroupID{ID: core.NewID(now)}, Extent: core.ExtentID{ID: core.NewID(now)},
		Seq: 1<<40 + 7, Attempt: 3, Session: 8, Epoch: 5, Generation: 1<<63 + 1,
	}
}

func TestToken_RoundTrip(t *testing.T) {
	keys := Keys{Current: NewKey()}
	rapid.Check(t, func(t *rapid.T) {
		want := Token{
			Seq: core.Seq(rapid.Uint64Min(1).Draw(t, "seq")), Attempt: rapid.Uint16().Draw(t, "attempt"),
			Session: rapid.Uint32().Draw(t, "session"), Epoch: uint64(rapid.Uint32().Draw(t, "epoch")), Generation: rapid.Uint64().Draw(t, "generation"),
		}
		for _, id := range []*core.ID{&want.Queue.ID, &want.Group.ID, &want.Extent.ID} {
			copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		}
		s := want.Seal(keys)
		if len(s) != Len {
			t.Fatalf("sealed token has %d characters, want %d", len(s), Len)
		}
		got, err := Open(keys, s)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("token changed (-want +got):\n%s", d)
		}
	})
}

// The layout is stable: tokens outlive the build that sealed them.
func TestToken_Golden(t *testing.T) {
	var key Key
	key[0] = 1
	tok := Token{Seq: 258, Attempt: 2, Epoch: 3, Generation: 4}
	tok.Queue.ID[0], tok.Group.ID[0], tok.Extent.ID[0] = 0xa, 0xb, 0xc
	const pulled = "AQoAAAAAAAAAAAAAAAAAAAALAAAAAAAAAAAAAAAAAAAADAAAAAAAAAAAAAAAAAAAAAAAAAAAAAECAAIAAAAAAAAAAwAAAAAAAAAE345_sNw-TQsPSQyCZbY96Q"
	if got := tok.Seal(Keys{Current: key}); got != pulled {
		t.Errorf("of a pull: got  %s\nwant %s", got, pulled)
	}
	const streamed = "AQoAAAAAAAAAAAAAAAAAAAALAAAAAAAAAAAAAAAAAAAADAAAAAAAAAAAAAAAAAAAAAAAAAAAAAECAAIAAAAFAAAAAwAAAAAAAAAETU4V2rKJDinkkwFRPfacXg"
	tok.Session = 5
	if got := tok.Seal(Keys{Current: key}); got != streamed {
		t.Errorf("of a session: got  %s\nwant %s", got, streamed)
	}
}

func TestOpen_RotatedKeys(t *testing.T) {
	old, now := NewKey(), NewKey()
	s := sample().Seal(Keys{Current: old})
	if _, err := Open(Keys{Current: now, Previous: old}, s); err != nil {
		t.Errorf("open with the previous key: %v", err)
	}
	if _, err := Open(Keys{Current: now}, s); !errors.Is(err, core.ErrBadToken) {
		t.Errorf("open after the rotation ended: got %v, want a bad token", err)
	}
}

func TestOpen_RefusesEveryAlteredCharacter(t *testing.T) {
	keys := Keys{Current: NewKey()}
	s := sample().Seal(keys)
	for i := range s {
		for _, c := range []byte{'A', 'z', '_', '\n', '=', 0xff} {
			if s[i] == c {
				continue
			}
			bad := s[:i] + string([]byte{c}) + s[i+1:]
			if _, err := Open(keys, bad); !errors.Is(err, core.ErrBadToken) {
				t.Fatalf("character %d set to %q: got %v, want a bad token", i, c, err)
			}
		}
	}
}

// A user who mixes up two ids, or whose shell variable is empty, reads which it is.
func TestOpen_NamesMistakes(t *testing.T) {
	receipt := core.Receipt{Extent: core.ExtentID{ID: core.NewID(time.UnixMilli(1_790_000_000_000))}, Seq: 7}.String()
	for given, want := range map[string]string{"": "is empty", receipt: receipt + " is a receipt"} {
		_, err := Open(Keys{Current: NewKey()}, given)
		if !errors.Is(err, core.ErrBadToken) || !strings.Contains(err.Error(), want) {
			t.Errorf("open %q: got %v, want a bad token that %s", given, err, want)
		}
	}
}

func TestOpen_Refuses(t *testing.T) {
	keys := Keys{Current: NewKey()}
	s := sample().Seal(keys)
	raw, _ := base64.RawURLEncoding.DecodeString(s)
	newer := append([]byte{version + 1}, raw[1:bodyLen]...)
	newer = append(newer, mac(keys.Current, newer)...)
	unkeyed := append(raw[:bodyLen:bodyLen], mac(Key{}, raw[:bodyLen])...)
	for name, bad := range map[string]string{
		"empty":           "",
		"a word":          "forged",
		"truncated":       s[:len(s)-1],
		"longer":          s + "A",
		"padded":          s + "==",
		"new line":        s[:len(s)-1] + "\n",
		"huge":            strings.Repeat("A", 1<<20),
		"of zeros":        strings.Repeat("A", Len),
		"foreign":         sample().Seal(Keys{Current: NewKey()}),
		"newer version":   base64.RawURLEncoding.EncodeToString(newer),
		"sealed unkeyed":  base64.RawURLEncoding.EncodeToString(unkeyed),
		"standard base64": strings.NewReplacer("-", "+", "_", "/").Replace(s) + "=",
	} {
		tok, err := Open(keys, bad)
		if !errors.Is(err, core.ErrBadToken) || tok != (Token{}) {
			t.Errorf("%s: got %v, %v, want a bad token", name, tok, err)
		}
	}
	if _, err := Open(Keys{}, base64.RawURLEncoding.EncodeToString(unkeyed)); !errors.Is(err, core.ErrBadToken) {
		t.Errorf("without keys: got %v, want a bad token", err)
	}
}

func TestSeal_WithoutKeyPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("sealed a token that anybody can forge")
		}
	}()
	sample().Seal(Keys{})
}

func TestKeys_JSON(t *testing.T) {
	want := Keys{Current: NewKey()}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Keys
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Error("keys changed on their way through JSON")
	}
	for _, bad := range []string{`{"current":"00"}`, `{"current":"` + strings.Repeat("zz", 32) + `"}`} {
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s: accepted", bad)
		}
	}
}

func TestKey_StaysOutOfLogs(t *testing.T) {
	k := NewKey()
	digits, _ := k.MarshalText()
	var text, object strings.Builder
	slog.New(slog.NewTextHandler(&text, nil)).Info("x", "key", k, "keys", Keys{Current: k})
	slog.New(slog.NewJSONHandler(&object, nil)).Info("x", "key", k, "keys", Keys{Current: k})
	for _, s := range []string{text.String(), object.String(), fmt.Sprint(k), fmt.Sprintf("%v %+v %s", Keys{Current: k}, Keys{Current: k}, k)} {
		if strings.Contains(s, string(digits)) || !strings.Contains(s, "redacted") {
			t.Errorf("printed as %s", s)
		}
	}
}

func FuzzOpen(f *testing.F) {
	var key Key
	key[0] = 1
	keys := Keys{Current: key}
	f.Add("")
	f.Add(sample().Seal(keys))
	f.Add(strings.Repeat("A", Len))
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := Open(keys, s)
		switch {
		case err == nil && tok.Seal(keys) != s:
			t.Errorf("%q opens, but is not what %v seals to", s, tok)
		case err != nil && !errors.Is(err, core.ErrBadToken):
			t.Errorf("%q: %v is not a bad token", s, err)
		}
	})
}

// The tokens that a consumer derives name what it says; the token of the extent alone settles nothing, and a token of a
// delivery derives none.
func TestOpen_Derived(t *testing.T) {
	keys := Keys{Current: NewKey()}
	want := sample()
	extent := want.SealExtent(keys)
	got, err := Open(keys, core.DeliveryToken(extent, want.Seq, want.Attempt))
	if err != nil {
		t.Fatal(err)
	}
	want.Derived = true
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("token changed (-want +got):\n%s", d)
	}
	derived := core.DeliveryToken(extent, 7, 1)
	if len(derived) != DerivedLen {
		t.Errorf("a derived token has %d characters, want %d", len(derived), DerivedLen)
	}
	for what, bad := range map[string]string{
		"the token of an extent":              extent,
		"seq 0":                               core.DeliveryToken(extent, 0, 1),
		"attempt 0":                           core.DeliveryToken(extent, 1, 0),
		"derived from the token of a message": core.DeliveryToken(sample().Seal(keys), 7, 1),
		"of another cluster":                  core.DeliveryToken(sample().SealExtent(Keys{Current: NewKey()}), 7, 1),
		"cut off":                             derived[:len(derived)-1],
		"with a tail":                         derived + "A",
		"no base64":                           derived[:len(derived)-1] + "=",
	} {
		if _, err := Open(keys, bad); !errors.Is(err, core.ErrBadToken) {
			t.Errorf("%s: got %v, want a bad token", what, err)
		}
	}
	for i := range Len {
		bad := []byte(derived)
		bad[i] ^= 1
		if _, err := Open(keys, string(bad)); !errors.Is(err, core.ErrBadToken) {
			t.Fatalf("character %d altered: got %v, want a bad token", i, err)
		}
	}
}

func TestDistinct_KeepsTheOrder(t *testing.T) {
	given := []string{"b", "a", "b", "c", "a"}
	if got := Distinct(given); !slices.Equal(got, []string{"b", "a", "c"}) || given[2] != "b" {
		t.Errorf("got %q, and the given tokens are %q", got, given)
	}
}
