package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestCluster_SaysWhoIsWhoAndHowToGoOn(t *testing.T) {
	c := newCluster(options{program: "bin/columba", port: 4922, data: "d", temporary: true})
	ended := exec.Command(os.Args[0], "-test.run=^$")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	for _, m := range c.members {
		m.cmd = ended
		list.WriteString(`{"host":"host-of-` + m.name + `","addr":"` + m.addr + `","roles":[]}` + "\n")
	}
	lines := strings.SplitAfter(list.String(), "\n")
	if n := c.identify([]byte(strings.Join(lines[1:], ""))); n != 1 {
		t.Errorf("%d members are missing in a list that lacks one", n)
	}
	if n := c.identify([]byte(list.String())); n != 0 {
		t.Errorf("%d members are missing in a list of all", n)
	}
	var out strings.Builder
	c.describe(&out, time.Second)
	c.reportEnd(&out, c.members[1])
	for _, want := range []string{"host-of-output2", "127.0.0.1:4929", "store1 (host-of-store1, process ", "-test.run=^$", "kill -9 any of these processes; without the controller ", "deletes the data"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
	if c.members[3].zone != "c" || c.members[4].zone != "" {
		t.Errorf("zones: %q of %s, %q of %s", c.members[3].zone, c.members[3].name, c.members[4].zone, c.members[4].name)
	}
}

// TestCluster_OnCassandra has three controllers, which get the URL, and commands that know all of them.
func TestCluster_OnCassandra(t *testing.T) {
	c := newCluster(options{program: "bin/columba", port: 5000, data: "d", metadata: "cassandra://a/columba"})
	if len(c.members) != 10 || c.members[2].roles() != "controller,frontend" || c.members[5].zone != "c" {
		t.Fatalf("%d members; the third serves %s, the sixth is in zone %q", len(c.members), c.members[2].roles(), c.members[5].zone)
	}
	ended := exec.Command(os.Args[0], "-test.run=^$")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.members {
		m.cmd = ended
	}
	var out strings.Builder
	c.describe(&out, time.Second)
	for _, want := range []string{"--addr 127.0.0.1:5000,127.0.0.1:5001,127.0.0.1:5002", "kill -9 any of these processes: ", "metadata are in cassandra://a/columba\n", "bin/columba schema show cassandra://a/columba\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
}
