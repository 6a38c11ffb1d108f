package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// deliveryRules are the rows of the table of delivery rules. Each is shown in process and by the binary's commands.
var deliveryRules = []string{
	"LockTimeout", "MaxDeliveries", "Isolation", "Nack", "Reject", "ShortWaits", "LongWaits", "NotWritable", "Credits", "ConsumerGoesAway", "OutstandingLimit",
	"DeliveryMode", "Exhausted", "Breaker", "NackThrottle", "RetryLimit", "Start", "GroupDelay", "SkipOlder", "ExpireAt", "Order",
}

// TestDeliveryRulesAreShown compares the rules with the tests that are named for them, and with the table in the docs.
func TestDeliveryRulesAreShown(t *testing.T) {
	inProcess := namedTests(t, "TestRule_", "test/cluster", "core/dispatch")
	byCommand := namedTests(t, "TestRuleByCommand_", "test/integration")
	text, err := os.ReadFile(filepath.Join(moduleRoot, "docs/operations/rules.md"))
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string][]string{
		"in process": inProcess, "by command": byCommand,
		"rows of the table":             rows(string(text), "`TestRule_(\\w+)`"),
		"rows of the table, by command": rows(string(text), "`TestRuleByCommand_(\\w+)`"),
	} {
		want := slices.Sorted(slices.Values(deliveryRules))
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
}

// namedTests are the rules for which there is a test in one of the packages, each once. Of "Nack_OfNobody" the rule is
// "Nack".
func namedTests(t *testing.T, prefix string, packages ...string) (rules []string) {
	t.Helper()
	for _, p := range packages {
		files, err := filepath.Glob(filepath.Join(moduleRoot, p, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no tests in %s: %v", p, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range rows(string(text), `(?m)^func `+prefix+`(\w+)\(t \*testing\.T\)`) {
				rule, _, _ := strings.Cut(name, "_")
				rules = append(rules, rule)
			}
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

func rows(text, pattern string) (found []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}
