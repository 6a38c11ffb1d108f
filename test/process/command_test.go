package process

import (
	"bufio"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestWholeLines(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want []string
	}{
		{"", nil},
		{"cut", nil},
		{"a\n\nb\n", []string{"a", "", "b"}},
		{"a\n{\"cut\":", []string{"a"}},
	} {
		in := bufio.NewScanner(iotest.OneByteReader(strings.NewReader(tc.in)))
		in.Split(wholeLines)
		var got []string
		for in.Scan() {
			got = append(got, in.Text())
		}
		if !slices.Equal(got, tc.want) || in.Err() != nil {
			t.Errorf("%q has the lines %q, want %q (%v)", tc.in, got, tc.want, in.Err())
		}
	}
}
