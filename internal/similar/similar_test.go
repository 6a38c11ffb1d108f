package similar

import "testing"

func TestTo(t *testing.T) {
	names := []string{"log-level", "log-format", "listen"}
	for name, want := range map[string]string{"loglevel": "log-level", "log_level": "log-level", "log-fromat": "log-format", "li": "listen", "x": "", "zone": "", "": ""} {
		if got := To(name, names); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
