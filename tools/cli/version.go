package cli

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version is the release this binary was built as; builds set it with -ldflags -X. Empty: see the module's build info.
var Version string

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version of this binary",
		Example: "  columba version -o json",
		Args:    exactly(0),
		RunE: a.run(func(context.Context, []string) error {
			return a.printer().object(versionFields())
		}),
	}
}

// buildVersion is what this binary calls itself.
func buildVersion() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func versionFields() []field {
	revision, dirty := "", false
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				revision = s.Value
			case "vcs.modified":
				dirty = s.Value == "true"
			}
		}
	}
	return []field{
		{name: "version", value: buildVersion()}, {name: "revision", value: revision}, {name: "modified", value: dirty},
		{name: "go", value: runtime.Version()}, {name: "platform", value: runtime.GOOS + "/" + runtime.GOARCH},
	}
}
