package cli

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/similar"
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
		switch {
		case errors.Is(err, errTwice):
			what = "--" + f.Name + " is given twice"
			see = "give it once, see"
		case f.Value.Type() == "duration":
			see = "write it like " + core.DurationForms + ", see"
		}
	case errors.As(err, &unknown) && strings.ContainsAny(unknown.GetSpecifiedShortnames()[:min(1, len(unknown.GetSpecifiedShortnames()))], "0123456789"):
		what = strconv.Quote("-"+clip(unknown.GetSpecifiedShortnames())) + " is not a flag"
		see = "what begins with a dash goes with the flag it is the value of, see"
	case errors.As(err, &unknown) && len(ownersOf(cmd, unknown.GetSpecifiedName())) > 0:
		see = "it belongs to " + strings.Join(ownersOf(cmd, unknown.GetSpecifiedName()), " and ") + ", see"
	}
	return core.Errorf(core.CodeBadArgument, "%s; %s `%s --help`", what, see, cmd.CommandPath())
}

// ownersOf are the subcommands of cmd that have a flag which it has not itself: the name of the subcommand was left
// out.
func ownersOf(cmd *cobra.Command, flag string) (out []string) {
	for _, sub := range cmd.Commands() {
		if sub.LocalFlags().Lookup(flag) != nil && !sub.Hidden {
			out = append(out, "`"+sub.CommandPath()+"`")
		}
	}
	return out
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

// checkEmpty refuses flags without a value: a script meant to give one, and what the command does without it may be
// more than was meant.
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

// similarFlag is "did you mean --this? See" for a flag that cmd does not have but that is close to one it has; else
// "see".
func similarFlag(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return "see"
	}
	name := unknown.GetSpecifiedName()
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	near := similar.To(name, names)
	if near == "" {
		return "see"
	}
	return "did you mean --" + near + "? See"
}

// durationFlag is a flag for a duration, also in days and weeks.
type durationFlag time.Duration

func durationVar(f *pflag.FlagSet, to *time.Duration, name string, value time.Duration, usage string) {
	*to = value
	f.Var((*durationFlag)(to), name, usage)
	if value == 0 {
		f.Lookup(name).DefValue = "" // not worth a word in the help
	}
}

// Set reads the flag's text.
func (d *durationFlag) Set(text string) error {
	v, err := core.ParseDuration(text)
	*d = durationFlag(v)
	return err
}

// String is the duration.
func (d *durationFlag) String() string { return time.Duration(*d).String() }

// Type names the flag's kind in help.
func (d *durationFlag) Type() string { return "duration" }

// onceFlag refuses a second value: the first would be forgotten.
type onceFlag struct {
	pflag.Value
	given bool
}

var errTwice = errors.New("is given twice; give it once")

// Set reads the flag's text.
func (o *onceFlag) Set(text string) error {
	if o.given {
		return errTwice
	}
	o.given = true
	return o.Value.Set(text)
}

// onlyOnce makes the flags of a command and those below it refuse a second value where they have one.
func onlyOnce(cmd *cobra.Command) {
	wrap := func(f *pflag.Flag) {
		_, many := f.Value.(pflag.SliceValue)
		_, wrapped := f.Value.(*onceFlag)
		if !many && !wrapped && f.Value.Type() != "bool" {
			f.Value = &onceFlag{Value: f.Value}
		}
	}
	cmd.PersistentFlags().VisitAll(wrap)
	cmd.Flags().VisitAll(wrap)
	for _, sub := range cmd.Commands() {
		onlyOnce(sub)
	}
}

// smallSize is the least number of bytes that is read without a unit: a smaller one is meant in another unit.
const smallSize = 100

// size is a flag for a number of bytes: 1048576, 1024KiB, 1MiB or 1MB.
type size int64

var units = []struct {
	suffix string
	bytes  float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// Set reads the flag's text.
func (s *size) Set(text string) error {
	number, unit := text, 1.0
	for _, u := range units {
		if n, ok := strings.CutSuffix(text, u.suffix); ok {
			number, unit = strings.TrimSpace(n), u.bytes
			break
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(v) || v < 0 || v*unit >= math.MaxInt64 {
		return core.Errorf(core.CodeBadArgument, "%q is not a size like 512KiB or 1MiB", clip(text))
	}
	if unit == 1 && v != math.Trunc(v) {
		return core.Errorf(core.CodeBadArgument, "%q is not a whole number of bytes", clip(text))
	}
	if number == text && v > 0 && v < smallSize {
		return core.Errorf(core.CodeBadArgument, "%q has no unit; write it like %sMiB, or %sB for bytes", clip(text), number, number)
	}
	*s = size(v * unit)
	return nil
}

// String is the number of bytes, as Set reads it.
func (s *size) String() string {
	text := strconv.FormatInt(int64(*s), 10)
	if *s > 0 && *s < smallSize {
		text += "B"
	}
	return text
}

// Type names the flag's kind in help.
func (s *size) Type() string { return "size" }
