package node

import (
	"strings"
	"testing"

	"github.com/columbamq/columba/core"
)

func TestConfigOfACluster(t *testing.T) {
	for name, tc := range map[string]struct {
		change    func(*Config)
		clustered bool
		gossip    string
		replicas  int
	}{
		"alone":             {func(*Config) {}, false, "127.0.0.1:5922", 1},
		"alone, three":      {func(c *Config) { c.Stores = 3 }, false, "127.0.0.1:5922", 3},
		"alone, two":        {func(c *Config) { c.Stores = 2 }, false, "127.0.0.1:5922", 2},
		"alone, many":       {func(c *Config) { c.Stores = MaxStores }, false, "127.0.0.1:5922", 3},
		"alone, number":     {func(c *Config) { c.Replicas = 2 }, false, "127.0.0.1:5922", 2},
		"some roles":        {func(c *Config) { c.Roles = []string{RoleStore} }, true, "127.0.0.1:5922", 3},
		"joins":             {func(c *Config) { c.Join = []string{"127.0.0.1:6000"} }, true, "127.0.0.1:5922", 3},
		"gossips":           {func(c *Config) { c.Gossip = "127.0.0.1:7000" }, true, "127.0.0.1:7000", 3},
		"gossips, number":   {func(c *Config) { c.Gossip, c.Replicas = "127.0.0.1:7000", 1 }, true, "127.0.0.1:7000", 1},
		"a free port":       {func(c *Config) { c.Listen, c.Roles = "[::1]:0", []string{RoleStore} }, true, "[::1]:0", 3},
		"all, one by one":   {func(c *Config) { c.Roles = []string{RoleFrontend, RoleInput, RoleOutput, RoleController, RoleStore} }, false, "127.0.0.1:5922", 1},
		"advertises itself": {func(c *Config) { c.Listen, c.Advertise, c.Insecure = "0.0.0.0:4000", "10.0.0.7:9", true }, false, "0.0.0.0:5000", 1},
	} {
		c := DefaultConfig()
		tc.change(&c)
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.clustered() != tc.clustered || c.gossipAddress() != tc.gossip || c.replicas() != tc.replicas {
			t.Errorf("%s: got clustered %v, gossip %s, replicas %d; want %v, %s, %d",
				name, c.clustered(), c.gossipAddress(), c.replicas(), tc.clustered, tc.gossip, tc.replicas)
		}
	}
}

func TestConfigOfAClusterThatCannotBe(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no port for it":      {func(c *Config) { c.Listen, c.Roles = "127.0.0.1:65000", []string{RoleStore} }, "--gossip"},
		"gossip":              {func(c *Config) { c.Gossip = "here" }, "host:port"},
		"gossip as listen":    {func(c *Config) { c.Gossip = c.Listen }, "a port of its own"},
		"gossip for all":      {func(c *Config) { c.Gossip = "10.0.0.7:1" }, "--insecure"},
		"gossip everywhere":   {func(c *Config) { c.Gossip = "0.0.0.0:1" }, "--insecure"},
		"gossip as what":      {func(c *Config) { c.Gossip, c.Insecure = "0.0.0.0:1", true }, "--advertise"},
		"join":                {func(c *Config) { c.Join = []string{"a:1", "b"} }, `join "b" is not host:port; write it like 127.0.0.1:5922`},
		"join everybody":      {func(c *Config) { c.Join = []string{"0.0.0.0:1"} }, "no address that can be reached"},
		"join port":           {func(c *Config) { c.Join = []string{"a:70000"} }, "0 … 65535"},
		"no store":            {func(c *Config) { c.Stores = 0 }, "stores 0 is not in 1 …"},
		"too many stores":     {func(c *Config) { c.Stores = MaxStores + 1 }, "stores 17 is not in 1 …"},
		"stores without role": {func(c *Config) { c.Stores, c.Roles = 2, []string{RoleInput} }, "needs the role storehost"},
	} {
		c := DefaultConfig()
		tc.change(&c)
		if err := c.Validate(); core.CodeOf(err) != core.CodeBadArgument || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s with %q", name, err, core.CodeBadArgument, tc.want)
		}
	}
}

func TestConfigJoinIsAList(t *testing.T) {
	got, err := load(t, nil, nil, "join: [127.0.0.1:1, 127.0.0.1:2]\n")
	if err != nil || strings.Join(got.Join, " ") != "127.0.0.1:1 127.0.0.1:2" {
		t.Errorf("from a file: got %q, %v", got.Join, err)
	}
	got, err = load(t, []string{"--join", "127.0.0.1:3, 127.0.0.1:4,"}, map[string]string{"COLUMBA_JOIN": "127.0.0.1:5"}, "")
	if err != nil || strings.Join(got.Join, " ") != "127.0.0.1:3 127.0.0.1:4" {
		t.Errorf("from a flag: got %q, %v", got.Join, err)
	}
	var out strings.Builder
	if err := got.Print(&out, true); err != nil {
		t.Fatal(err)
	}
	if again, err := load(t, nil, nil, out.String()); err != nil || strings.Join(again.Join, " ") != "127.0.0.1:3 127.0.0.1:4" {
		t.Errorf("printed and read back: got %q, %v\n%s", again.Join, err, out.String())
	}
}
