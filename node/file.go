package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/similar"
)

// maxConfigFile bounds what is read as configuration, in bytes.
const maxConfigFile = 1 << 20

// fileSetting is a key of a configuration file that is a setting.
type fileSetting struct {
	key, value string
	line       int
}

// fileFault is what is wrong at a line of a configuration file; line 0: with the file.
type fileFault struct {
	error
	line int
}

// Unwrap has the fault's code found.
func (f fileFault) Unwrap() error { return f.error }

// lineOf is the line of a configuration file that an error is about; 0: none.
func lineOf(err error) int {
	var fault fileFault
	errors.As(err, &fault)
	return fault.line
}

func fileError(path string, line int, format string, args ...any) error {
	if line > 0 {
		path += ":" + strconv.Itoa(line)
	}
	return fileFault{core.Errorf(core.CodeBadArgument, "configuration file %s: "+format, append([]any{path}, args...)...), line}
}

// readFile sets settings from a YAML file, and answers which ones and all that is wrong. It is strict: a key that is no
// setting, a key given twice, a value of another kind and a second document are errors, with their lines.
func readFile(path string, settings *pflag.FlagSet) (set []fileSetting, errs []error) {
	text, err := readBounded(path)
	if err != nil {
		return nil, []error{err}
	}
	bad := func(n *yaml.Node, format string, args ...any) {
		line := 0
		if n != nil {
			line = n.Line
		}
		errs = append(errs, fileError(path, line, format, args...))
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		bad(nil, "%w", err)
		return nil, errs
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		bad(nil, "holds a second document; keep one")
		return nil, errs
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		bad(root, "is not a list of keys and values; write lines like `data: /var/lib/columba`")
		return nil, errs
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		setting := settings.Lookup(key.Value)
		switch {
		case setting == nil:
			hint := "`columba config print` shows the known ones"
			if near := similarKey(key.Value, settings); near != "" {
				hint = "did you mean " + near + "?"
			}
			bad(key, "key %q is unknown; %s", key.Value, hint)
			continue
		case seen[key.Value]:
			bad(key, "key %q is given twice", key.Value)
			continue
		}
		seen[key.Value] = true
		s, err := scalar(value)
		if err == nil {
			err = setValue(setting, s)
		}
		if err != nil {
			bad(value, "%s: %w", key.Value, err)
			continue
		}
		set = append(set, fileSetting{key.Value, s, key.Line})
	}
	return set, errs
}

// similarKey is the setting that an unknown key was likely meant to be; "": none.
func similarKey(key string, settings *pflag.FlagSet) string {
	var names []string
	settings.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return similar.To(key, names)
}

// setValue sets a setting from text, and says plainly what the text is not.
func setValue(setting *pflag.Flag, text string) error {
	err := setting.Value.Set(text)
	switch kind := setting.Value.Type(); {
	case err == nil:
		return nil
	case kind == "int" && errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%q is out of range", text)
	case kind == "int":
		return fmt.Errorf("%q is not a whole number", text)
	case kind == "bool":
		return fmt.Errorf("%q is neither true nor false", text)
	}
	return err
}

// scalar is the text of a value; a list of values is joined by commas.
func scalar(n *yaml.Node) (string, error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return "", errors.New("has no value; give one or leave the key out")
	case n.Kind == yaml.ScalarNode:
		return n.Value, nil
	case n.Kind == yaml.SequenceNode:
		var parts []string
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				return "", errors.New("is a list of something other than plain values")
			}
			parts = append(parts, item.Value)
		}
		return strings.Join(parts, ","), nil
	}
	return "", errors.New("is not a plain value")
}

// quoteYAML prints a value so that the file's reader gets the same back.
func quoteYAML(v pflag.Value) string {
	if t := v.Type(); t == "bool" || t == "int" {
		return v.String()
	}
	out, err := yaml.Marshal(v.String())
	if err != nil { // strings always marshal
		return strconv.Quote(v.String())
	}
	return strings.TrimSuffix(string(out), "\n")
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		code := core.CodeBadArgument
		if errors.Is(err, fs.ErrNotExist) {
			code = core.CodeNotFound
		}
		return nil, core.Errorf(code, "read the configuration: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfigFile+1))
	if err != nil {
		return nil, core.Errorf(core.CodeBadArgument, "read the configuration %s: %w", path, err)
	}
	if len(text) > maxConfigFile {
		return nil, core.Errorf(core.CodeTooLarge, "the configuration %s has more than %d bytes; name a file of settings with --config", path, maxConfigFile)
	}
	return text, nil
}
