package cli

import (
	"math"
	"strconv"
	"strings"

	"github.com/columbamq/columba/core"
)

// size is a flag for a number of bytes: 1048576, 1024KiB, 1MiB or 1MB.
type size int64

var units = []struct {
	suffix string
	bytes  float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// Set reads the flag's text.
func (s *size) Set(text string) error {
	number, unit := text, 1.0
	for _, u := range units {
		if n, ok := strings.CutSuffix(text, u.suffix); ok {
			number, unit = strings.TrimSpace(n), u.bytes
			break
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(v) || v < 0 || v*unit >= math.MaxInt64 {
		return core.Errorf(core.CodeBadArgument, "%q is not a size like 512KiB or 1MiB", clip(text))
	}
	if unit == 1 && v != math.Trunc(v) {
		return core.Errorf(core.CodeBadArgument, "%q is not a whole number of bytes", clip(text))
	}
	*s = size(v * unit)
	return nil
}

// String is the number of bytes.
func (s *size) String() string { return strconv.FormatInt(int64(*s), 10) }

// Type names the flag's kind in help.
func (s *size) Type() string { return "size" }
