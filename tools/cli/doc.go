// Package cli owns the columba command line: its commands, flags, output formats, error lines and exit codes.
package cli
