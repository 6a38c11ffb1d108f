package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/columbamq/columba/core"
)

// load reads a configuration from flags, environment variables and the text of a file, "" for none.
func load(t *testing.T, args []string, env map[string]string, file string) (Config, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "columba.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"--config", path}, args...)
	}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	flags.String("output", "table", "the command's own")
	RegisterFlags(flags)
	if err := flags.Parse(args); err != nil {
		return Config{}, err
	}
	return Load(flags, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
}

func TestConfigPrecedence(t *testing.T) {
	const file = "log-level: error\nzone: from-file\nreplicas: 3\nroles: [inputhost, storehost]\n"
	env := map[string]string{"COLUMBA_LOG_LEVEL": "warn", "COLUMBA_ZONE": "from-env", "COLUMBA_ADDR": "1.2.3.4:5"}
	got, err := load(t, []string{"--log-level=debug", "--output=json"}, env, file)
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultConfig()
	want.LogLevel = "debug"                      // flag over env over file
	want.Zone = "from-env"                       // env over file
	want.Replicas = 3                            // file over default
	want.Roles = []string{RoleStore, RoleInput}  // in the order of starting
	if diff := cmp.Diff(want, got); diff != "" { // the rest: defaults
		t.Errorf("config (-want +got):\n%s", diff)
	}
	got, err = load(t, []string{"--zone="}, env, file)
	if err != nil || got.Zone != "" {
		t.Errorf("a flag set to nothing: got zone %q, %v, want it to count", got.Zone, err)
	}
}

func TestConfigFileFromEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("zone: z1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := load(t, nil, map[string]string{"COLUMBA_CONFIG": path}, ""); err != nil || got.Zone != "z1" {
		t.Errorf("got zone %q, %v, want z1", got.Zone, err)
	}
	if _, err := load(t, []string{"--config", path + ".no"}, nil, ""); core.CodeOf(err) != core.CodeNotFound {
		t.Errorf("a file that is not there: got %v, want %s", err, core.CodeNotFound)
	}
}

func TestConfigFileIsStrict(t *testing.T) {
	for name, tc := range map[string]struct{ file, want string }{
		"unknown key":     {"zone: a\nreplcas: 3\n", `columba.yaml:2: key "replcas" is unknown`},
		"config in it":    {"config: other.yaml\n", `key "config" is unknown`},
		"twice":           {"zone: a\nzone: b\n", `:2: key "zone" is given twice`},
		"wrong kind":      {"replicas: many\n", `:1: replicas: `},
		"nested":          {"zone: {a: b}\n", "is not a plain value"},
		"nested in list":  {"roles: [[storehost]]\n", "is a list of something other than plain values"},
		"no value":        {"zone:\n", "has no value"},
		"a list":          {"- zone\n", "is not a list of keys and values"},
		"second document": {"zone: a\n---\nzone: b\n", "second document"},
		"broken":          {"zone: \"a\n", "columba.yaml"},
		"unknown role":    {"roles: storehost,pigeon\n", `role "pigeon" is unknown`},
		"bad value":       {"replicas: -1\n", "replicas -1 is not in 0 … 7"},
	} {
		_, err := load(t, nil, nil, tc.file)
		if core.CodeOf(err) != core.CodeBadArgument || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s with %q", name, err, core.CodeBadArgument, tc.want)
		}
	}
	for name, file := range map[string]string{"empty": "\n", "comment": "# nothing\n", "null": "~\n"} {
		got, err := load(t, nil, nil, file)
		if diff := cmp.Diff(DefaultConfig(), got); err != nil || diff != "" {
			t.Errorf("%s: got %v, config (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestConfigNamesTheSourceToBlame(t *testing.T) {
	if _, err := load(t, nil, map[string]string{"COLUMBA_REPLICAS": "x"}, ""); core.CodeOf(err) != core.CodeBadArgument || !strings.Contains(err.Error(), `COLUMBA_REPLICAS="x"`) {
		t.Errorf("a bad variable: got %v", err)
	}
	if _, err := load(t, []string{"--replicas=x"}, nil, ""); err == nil || !strings.Contains(err.Error(), "--replicas") {
		t.Errorf("a bad flag: got %v", err)
	}
}

func TestConfigValidate(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the default: got %v", err)
	}
	for name, tc := range map[string]struct {
		change func(*Config)
		code   core.Code
		want   string
	}{
		"no data":          {func(c *Config) { c.Data = "" }, core.CodeBadArgument, "data is empty"},
		"no roles":         {func(c *Config) { c.Roles = nil }, core.CodeBadArgument, "roles is empty"},
		"unknown role":     {func(c *Config) { c.Roles = []string{"pigeon"} }, core.CodeBadArgument, `role "pigeon"`},
		"role twice":       {func(c *Config) { c.Roles = []string{RoleInput, RoleInput} }, core.CodeBadArgument, "twice"},
		"replicas":         {func(c *Config) { c.Replicas = 8 }, core.CodeBadArgument, "0 … 7"},
		"zone":             {func(c *Config) { c.Zone = "a b" }, core.CodeBadName, "zone"},
		"metadata":         {func(c *Config) { c.Metadata = "etcd://h/k" }, core.CodeBadArgument, "neither embedded nor cassandra:"},
		"level":            {func(c *Config) { c.LogLevel = "loud" }, core.CodeBadArgument, "debug, info, warn, error"},
		"format":           {func(c *Config) { c.LogFormat = "xml" }, core.CodeBadArgument, "text, json"},
		"no port":          {func(c *Config) { c.Listen = "127.0.0.1" }, core.CodeBadArgument, "host:port"},
		"port":             {func(c *Config) { c.Listen = "127.0.0.1:65536" }, core.CodeBadArgument, "0 … 65535"},
		"every address":    {func(c *Config) { c.Listen, c.Insecure = ":4922", true }, core.CodeBadArgument, "--advertise"},
		"advertises every": {func(c *Config) { c.Advertise = "0.0.0.0:4922" }, core.CodeBadArgument, "no address that others can reach"},
		"advertise":        {func(c *Config) { c.Advertise = "here" }, core.CodeBadArgument, "host:port"},
		"host of a space":  {func(c *Config) { c.Advertise = "a b:5" }, core.CodeBadArgument, "does not name a host"},
		"host of a line":   {func(c *Config) { c.Advertise = "a\n:5" }, core.CodeBadArgument, "does not name a host"},
		"host of a path":   {func(c *Config) { c.Join = []string{"a/b:5"} }, core.CodeBadArgument, "does not name a host"},
		"port with a sign": {func(c *Config) { c.Advertise = "a:+5" }, core.CodeBadArgument, "0 … 65535"},
		"pattern of names": {func(c *Config) { c.HostNames = []string{"*.example"} }, core.CodeBadArgument, "no name of a host"},
		"name with a port": {func(c *Config) { c.HostNames = []string{"proxy.example:80"} }, core.CodeBadArgument, "without a port"},
	} {
		c := DefaultConfig()
		tc.change(&c)
		if err := c.Validate(); core.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s with %q", name, err, tc.code, tc.want)
		}
	}
}

func TestOnlyLoopbackWithoutInsecure(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:4922", ":4922", "[::]:4922", "10.1.2.3:4922", "example.org:4922"} {
		c := DefaultConfig()
		c.Listen, c.Advertise = listen, "10.1.2.3:4922"
		err := c.Validate()
		if core.CodeOf(err) != core.CodeBadArgument || !strings.Contains(err.Error(), "--insecure") {
			t.Errorf("listen %s: got %v, want a refusal that names --insecure", listen, err)
		}
		c.Insecure = true
		if err := c.Validate(); err != nil {
			t.Errorf("listen %s with insecure: got %v", listen, err)
		}
	}
	for _, listen := range []string{"127.0.0.1:0", "127.8.9.10:4922", "[::1]:4922", "localhost:4922"} {
		c := DefaultConfig()
		c.Listen = listen
		if err := c.Validate(); err != nil {
			t.Errorf("listen %s: got %v", listen, err)
		}
	}
}

func TestConfigPrintIsReadBack(t *testing.T) {
	c := DefaultConfig()
	c.Data, c.Zone, c.Insecure, c.Roles = "/data: \"odd\" # name", "null", true, []string{RoleStore}
	for _, diff := range []bool{false, true} {
		var out strings.Builder
		if err := c.Print(&out, diff); err != nil {
			t.Fatal(err)
		}
		got, err := load(t, nil, nil, out.String())
		if d := cmp.Diff(c, got); err != nil || d != "" {
			t.Errorf("printed with diff=%v: got %v, config (-want +got):\n%s\n%s", diff, err, d, out.String())
		}
		if all := strings.Contains(out.String(), "\nreplicas:"); all == diff {
			t.Errorf("printed with diff=%v: a default is there: %v\n%s", diff, all, out.String())
		}
	}
	var out strings.Builder
	if err := DefaultConfig().Print(&out, true); err != nil || out.String() != "" {
		t.Errorf("the difference of the default: got %q, %v, want nothing", out.String(), err)
	}
}
