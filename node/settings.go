package node

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/columbamq/columba/core"
)

// configFlag names the configuration file; it is the one flag that is no key of it.
const configFlag = "config"

// envPrefix and a flag's name in capitals, with _ for -, make the name of its environment variable.
const envPrefix = "COLUMBA_"

// RegisterFlags adds the flags of a server to a command's. Load reads them after they are parsed.
func RegisterFlags(flags *pflag.FlagSet) {
	cfg := DefaultConfig()
	cfg.register(flags)
	flags.String(configFlag, "", "read settings from a YAML `file`, whose keys are the names of these flags")
}

// register makes a setting of each field, with its value as the default.
func (c *Config) register(f *pflag.FlagSet) {
	f.StringVar(&c.Data, "data", c.Data, "`directory` that holds everything the server keeps; made when its parent exists")
	f.StringVar(&c.Listen, "listen", c.Listen, "`host:port` of the server's one port; port 0 takes a free one")
	f.StringVar(&c.Advertise, "advertise", c.Advertise, "`host:port` by which others reach the server (default: the one it listens on)")
	f.Var((*rolesValue)(&c.Roles), "roles", "`roles` to serve: all, or some of "+strings.Join(Roles, ","))
	f.IntVar(&c.Stores, "stores", c.Stores, "store hosts in this process, each with a directory and an address of its own")
	f.StringVar(&c.Gossip, "gossip", c.Gossip, "`host:port` for gossip, UDP and TCP (default: in a cluster the listen port + 1000)")
	f.Var((*addressesValue)(&c.Join), "join", "gossip `addresses`, host:port, of members of the cluster to join, separated by commas")
	f.IntVar(&c.Replicas, "replicas", c.Replicas, "copies of each message in queues created without a number of their own, read when the cluster is first started; 0: 3 in a cluster, else one per store, at most 3")
	f.StringVar(&c.Zone, "zone", c.Zone, "failure zone of this host; replicas are spread over zones")
	f.StringVar(&c.Metadata, "metadata", c.Metadata, "where the cluster's records are: embedded, or the `URL` of a Cassandra cluster, like cassandra://10.0.0.1,10.0.0.2/columba")
	f.StringVar(&c.LogLevel, "log-level", c.LogLevel, "least `level` that is logged: debug, info, warn or error")
	f.StringVar(&c.LogFormat, "log-format", c.LogFormat, "`format` of the log: text or json")
	f.Var((*addressesValue)(&c.HostNames), "host-names", "`names` by which clients call a server that listens on loopback, besides localhost, separated by commas: those of a proxy before it")
	f.BoolVar(&c.Insecure, "insecure", c.Insecure, "allow to listen where other machines reach the server, without TLS or authentication")
}

// Load is the configuration: flags that were given, over environment variables (COLUMBA_LOG_LEVEL for --log-level),
// over the file named by --config or COLUMBA_CONFIG, over defaults. flags were registered by RegisterFlags and parsed;
// lookup is os.LookupEnv. The result is valid. Errors say which source is to blame: CodeBadArgument, CodeNotFound (no
// such file). Several errors of the file are joined.
func Load(flags *pflag.FlagSet, lookup func(string) (string, bool)) (Config, error) {
	cfg, settings := settingsOf(DefaultConfig())
	file, _ := lookup(envName(configFlag))
	if f := flags.Lookup(configFlag); f != nil && f.Changed {
		file = f.Value.String()
	}
	if file != "" {
		if _, errs := readFile(file, settings); len(errs) > 0 {
			return Config{}, joined(CheckFile(file))
		}
	}
	var errs []error
	settings.VisitAll(func(f *pflag.Flag) {
		if v, ok := lookup(envName(f.Name)); ok {
			if err := setValue(f, v); err != nil {
				errs = append(errs, core.Errorf(core.CodeBadArgument, "environment variable %s=%q: %w", envName(f.Name), v, err))
			}
		}
	})
	flags.Visit(func(f *pflag.Flag) {
		own := settings.Lookup(f.Name)
		if own == nil {
			return // the command's own, not a setting
		}
		if err := own.Value.Set(f.Value.String()); err != nil {
			errs = append(errs, core.Errorf(core.CodeBadArgument, "flag --%s=%q: %w", f.Name, f.Value, err))
		}
	})
	if len(errs) > 0 {
		return Config{}, errs[0]
	}
	err := cfg.Validate()
	if err != nil && file != "" {
		inFile := CheckFile(file)
		if slices.ContainsFunc(inFile, func(e error) bool { return strings.Contains(e.Error(), err.Error()) }) {
			err = joined(inFile) // with their lines
		}
	}
	return *cfg, err
}

// joined is one error as it is, and several joined.
func joined(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// CheckFile reads a configuration file over the defaults and answers all that is wrong with it, each error with its
// line where it has one, and in the order of the lines.
func CheckFile(path string) []error {
	errs := checkFile(path)
	slices.SortStableFunc(errs, func(a, b error) int { return lineOf(a) - lineOf(b) })
	return errs
}

func checkFile(path string) []error {
	_, settings := settingsOf(DefaultConfig())
	set, errs := readFile(path, settings)
	if len(set) == 0 {
		return errs
	}
	validate := func(set []fileSetting) error {
		cfg, settings := settingsOf(DefaultConfig())
		for _, s := range set {
			if err := settings.Set(s.key, s.value); err != nil {
				return err // was said already
			}
		}
		return cfg.Validate()
	}
	for err := validate(set); err != nil; err = validate(set) {
		i := len(set) - 1
		for ; i >= 0; i-- { // to blame is the setting without which there is another error, or none
			without := validate(slices.Delete(slices.Clone(set), i, i+1))
			if without == nil || without.Error() != err.Error() {
				break
			}
		}
		if i < 0 {
			return append(errs, fileError(path, 0, "%w", err))
		}
		errs = append(errs, fileError(path, set[i].line, "%w", err))
		set = slices.Delete(set, i, i+1)
	}
	return errs
}

// EnvNames are the environment variables that Load reads.
func EnvNames() []string {
	_, settings := settingsOf(DefaultConfig())
	names := []string{envName(configFlag)}
	settings.VisitAll(func(f *pflag.Flag) { names = append(names, envName(f.Name)) })
	return names
}

// Print writes the configuration as a file that `--config` takes, each key under a line that explains it; with diff
// only what is not the default.
func (c Config) Print(w io.Writer, diff bool) error {
	_, settings := settingsOf(c)
	_, defaults := settingsOf(DefaultConfig())
	var errs []error
	settings.VisitAll(func(f *pflag.Flag) {
		if diff && f.Value.String() == defaults.Lookup(f.Name).Value.String() {
			return
		}
		_, usage := pflag.UnquoteUsage(f)
		_, err := fmt.Fprintf(w, "# %s\n%s: %s\n", usage, f.Name, quoteYAML(f.Value))
		errs = append(errs, err)
	})
	return errors.Join(errs...)
}

// settingsOf is a copy of c with its settings, in the order of the struct's fields.
func settingsOf(c Config) (*Config, *pflag.FlagSet) {
	c.Roles, c.Join, c.HostNames = slices.Clone(c.Roles), slices.Clone(c.Join), slices.Clone(c.HostNames)
	settings := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	settings.SortFlags = false
	c.register(settings)
	return &c, settings
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// addressesValue reads and prints a list of addresses.
type addressesValue []string

func (v *addressesValue) Type() string { return "addresses" }

func (v *addressesValue) String() string { return strings.Join(*v, ",") }

func (v *addressesValue) Set(s string) error {
	*v = nil
	for addr := range strings.SplitSeq(s, ",") {
		if addr = strings.TrimSpace(addr); addr != "" {
			*v = append(*v, addr)
		}
	}
	return nil
}

// rolesValue reads and prints a list of roles; "all" is all of them.
type rolesValue []string

func (v *rolesValue) Type() string { return "roles" }

func (v *rolesValue) String() string {
	if slices.Equal(*v, Roles) {
		return allRoles
	}
	return strings.Join(*v, ",")
}

func (v *rolesValue) Set(s string) error {
	if s == allRoles {
		*v = slices.Clone(Roles)
		return nil
	}
	*v = nil
	for role := range strings.SplitSeq(s, ",") {
		role = strings.TrimSpace(role)
		if !slices.Contains(Roles, role) {
			return fmt.Errorf("role %q is unknown; use all, or some of %s", role, strings.Join(Roles, ","))
		}
		*v = append(*v, role)
	}
	// In the order of Roles: all of them named one by one are "all".
	slices.SortFunc(*v, func(a, b string) int { return slices.Index(Roles, a) - slices.Index(Roles, b) })
	return nil
}
