package cli

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/similar"
	"github.com/columbamq/columba/node"
)

func (a *app) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve", Short: "Run a server",
		Long: "Run a server with all roles, or those of --roles as a part of a cluster. One line on stdout says that it is ready:\n" +
			"ready addr=… roles=… data=…, in a cluster with gossip=…, the address for --join of others.\n" +
			"SIGTERM, SIGINT and SIGHUP drain it. Each flag is also an environment variable (COLUMBA_DATA for --data) and a key of the --config file.",
		Example: "  columba serve\n  columba serve --data /var/lib/columba --listen 127.0.0.1:4922\n" +
			"  columba serve --stores 3\n" +
			"  columba serve --roles controller,frontend --data a\n" +
			"  columba serve --roles storehost --data b --listen 127.0.0.1:4923 --join 127.0.0.1:5922",
		Args: exactly(0),
	}
	node.RegisterFlags(cmd.Flags())
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		cfg, err := a.loadConfig(cmd.Flags())
		if err != nil {
			return err
		}
		return node.Serve(ctx, cfg, buildVersion(), a.stdout, a.stderr)
	})
	return cmd
}

// loadConfig is node.Load; an error that a variable of the environment brought about names it.
func (a *app) loadConfig(flags *pflag.FlagSet) (node.Config, error) {
	a.noteUnknownVariables()
	cfg, err := node.Load(flags, a.lookupEnv)
	if err == nil {
		return cfg, nil
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return cfg, a.complainAll("the configuration file", all.Unwrap())
	}
	err = noSuchFile(err)
	for _, kv := range a.env {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "COLUMBA_") || strings.Contains(err.Error(), name) {
			continue
		}
		without := func(key string) (string, bool) {
			if key == name {
				return "", false
			}
			return a.lookupEnv(key)
		}
		if _, werr := node.Load(flags, without); werr == nil || werr.Error() != err.Error() && noSuchFile(werr).Error() != err.Error() {
			return cfg, core.Errorf(core.CodeOf(err), "environment variable %s=%q: %w", name, clip(value), err)
		}
	}
	return cfg, err
}

// noteUnknownVariables says which variables of the environment look like settings and are none. They are not refused:
// Kubernetes makes some for a service of the name columba, of which those are not mentioned that it always makes.
func (a *app) noteUnknownVariables() {
	known := append(node.EnvNames(), "COLUMBA_ADDR")
	for _, kv := range a.env {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "COLUMBA_") || slices.Contains(known, name) || name == "COLUMBA_PORT" || strings.HasPrefix(name, "COLUMBA_PORT_") || strings.HasPrefix(name, "COLUMBA_SERVICE_") {
			continue
		}
		near, least := "", 3
		for _, k := range known {
			if d := similar.Distance(clip(name), k); d < least {
				near, least = k, d
			}
		}
		if near == "" {
			a.say("note: environment variable %s is no setting, and has no effect", clip(name))
		} else {
			a.say("note: environment variable %s is no setting, and has no effect; did you mean %s?", clip(name), near)
		}
	}
}

func (a *app) configCommand() *cobra.Command {
	return parent("config", "Show or check a server's configuration", a.configPrintCommand(), a.configCheckCommand())
}

func (a *app) configPrintCommand() *cobra.Command {
	var diff bool
	cmd := &cobra.Command{
		Use: "print", Short: "Show the configuration that `columba serve` with the same flags would use",
		Long: "Show the configuration that `columba serve` with the same flags and environment would use: flags over environment\n" +
			"variables (COLUMBA_DATA for --data) over the file of --config over defaults. The output is a valid configuration file, with -o json as well.",
		Example: "  columba config print --diff\n  columba config print > columba.yaml",
		Args:    exactly(0),
	}
	node.RegisterFlags(cmd.Flags())
	cmd.Flags().BoolVar(&diff, "diff", false, "only what is not the default")
	cmd.RunE = a.run(func(context.Context, []string) error {
		cfg, err := a.loadConfig(cmd.Flags())
		if err != nil {
			return err
		}
		if a.format != formatJSON {
			return cfg.Print(a.stdout, diff)
		}
		var text bytes.Buffer
		if err := cfg.Print(&text, diff); err != nil {
			return err
		}
		fields, err := yamlFields(text.Bytes())
		if err != nil {
			return err
		}
		return a.printer().object(fields)
	})
	return cmd
}

// yamlFields are the keys and values of a YAML mapping, in their order: the keys as they are, so that JSON of them is a
// configuration file, too.
func yamlFields(text []byte) ([]field, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, core.Errorf(core.CodeInternal, "configuration is not YAML: %w", err)
	}
	var fields []field
	for _, root := range doc.Content {
		for i := 0; i+1 < len(root.Content); i += 2 {
			var value any
			if err := root.Content[i+1].Decode(&value); err != nil {
				return nil, core.Errorf(core.CodeInternal, "configuration is not YAML: %w", err)
			}
			fields = append(fields, field{name: root.Content[i].Value, value: value})
		}
	}
	return fields, nil
}

func (a *app) configCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check FILE", Short: "Check a configuration file",
		Example: "  columba config check columba.yaml",
		Args:    exactly(1),
		RunE: a.run(func(_ context.Context, args []string) error {
			errs := node.CheckFile(args[0])
			switch len(errs) {
			case 0:
			case 1:
				return noSuchFile(errs[0])
			default:
				return a.complainAll(args[0], errs)
			}
			a.say("%s is a valid configuration", args[0])
			return nil
		}),
	}
}

// complainAll says all that is wrong with a file.
func (a *app) complainAll(file string, errs []error) error {
	for _, err := range errs {
		a.complain("", err)
	}
	a.say("%s has %d errors", file, len(errs))
	return exitError{core.ExitUsage}
}

// noSuchFile makes a missing file what it is on a command line: a wrong argument.
func noSuchFile(err error) error {
	if core.CodeOf(err) == core.CodeNotFound {
		return core.Errorf(core.CodeBadArgument, "%w; name a file that exists", err)
	}
	return err
}

func (a *app) lookupEnv(key string) (string, bool) {
	for _, kv := range a.env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == key {
			return v, true
		}
	}
	return "", false
}
