package cli

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/columbamq/columba/core"
)

// badFlag is what is wrong about a flag of cmd, and where to look it up.
func badFlag(cmd *cobra.Command, err error) error {
	what, see := firstLine(err.Error()), similarFlag(cmd, err)
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid):
		f := invalid.GetFlag()
		what = "--" + f.Name + ": " + badValue(f.Value.Type(), invalid.GetValue(), invalid.Unwrap())
		if f.Value.Type() == "duration" {
			see = "write it like 500ms, 30s or 72h, see"
		}
	case errors.As(err, &unknown) && strings.ContainsAny(unknown.GetSpecifiedShortnames()[:min(1, len(unknown.GetSpecifiedShortnames()))], "0123456789"):
		what = strconv.Quote("-"+clip(unknown.GetSpecifiedShortnames())) + " is not a flag"
		see = "what begins with a dash goes with the flag it is the value of, see"
	}
	return core.Errorf(core.CodeBadArgument, "%s; %s `%s --help`", what, see, cmd.CommandPath())
}

// badValue says what a value of a flag is not; cause is how the flag itself put it.
func badValue(kind, value string, cause error) string {
	kinds := map[string]string{
		"int": "a whole number", "int64": "a whole number", "uint32": "a whole number of 0 or more", "float64": "a number", "bool": "true or false", "duration": "a duration",
	}
	what, known := kinds[kind]
	switch {
	case !known:
		return firstLine(cause.Error())
	case errors.Is(cause, strconv.ErrRange):
		return strconv.Quote(clip(value)) + " is out of range"
	}
	return strconv.Quote(clip(value)) + " is not " + what
}

// mayBeEmpty are flags of which nothing is a value like any other.
var mayBeEmpty = []string{"prefix", "key", "metadata", "reason", "header", "addr", "output"}

// checkEmpty refuses flags without a value: a script meant to give one, and what the command does without it may be more than was meant.
func checkEmpty(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		list, many := f.Value.(pflag.SliceValue)
		empty := f.Value.Type() == "string" && f.Value.String() == "" && !slices.Contains(mayBeEmpty, f.Name)
		if err == nil && (empty || many && len(list.GetSlice()) == 0) {
			err = core.Errorf(core.CodeBadArgument, "--%s has no value; name one, or leave the flag out", f.Name)
		}
	})
	return err
}
