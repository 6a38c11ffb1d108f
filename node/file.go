package node

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/columbamq/columba/core"
)

// maxConfigFile bounds what is read as configuration, in bytes.
const maxConfigFile = 1 << 20

// readFile sets settings from a YAML file. It is strict: a key that is no setting, a key given twice, a value of another
// kind and a second document are errors, with their lines.
func readFile(path string, settings *pflag.FlagSet) error {
	text, err := readBounded(path)
	if err != nil {
		return err
	}
	bad := func(n *yaml.Node, format string, args ...any) error {
		at := path
		if n != nil {
			at += ":" + strconv.Itoa(n.Line)
		}
		return core.Errorf(core.CodeBadArgument, "configuration file %s: "+format, append([]any{at}, args...)...)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return bad(nil, "%w", err)
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return bad(nil, "holds a second document; keep one")
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		return bad(root, "is not a list of keys and values; write lines like `data: /var/lib/columba`")
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		setting := settings.Lookup(key.Value)
		switch {
		case setting == nil:
			return bad(key, "key %q is unknown; `columba config print` shows the known ones", key.Value)
		case seen[key.Value]:
			return bad(key, "key %q is given twice", key.Value)
		}
		seen[key.Value] = true
		s, err := scalar(value)
		if err == nil {
			err = setting.Value.Set(s)
		}
		if err != nil {
			return bad(value, "%s: %w", key.Value, err)
		}
	}
	return nil
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
		return nil, core.Errorf(core.CodeTooLarge, "the configuration %s has more than %d bytes", path, maxConfigFile)
	}
	return text, nil
}
