package cassandra

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/columbamq/columba/core"
)

// Scheme begins a URL that ParseURL reads.
const Scheme = "cassandra://"

const defaultPort = "9042"

// ParseURL reads a configuration from
//
//	cassandra://[USER@]HOST[:PORT][,HOST[:PORT]…][/KEYSPACE][?OPTION=VALUE[&OPTION=VALUE…]]
//
// The port is 9042 unless it is given, the keyspace is columba. The options are
//
//	local=HOST[:PORT]    the node that is asked first
//	password-file=FILE   the file that holds the password of USER, on one line
//	tls=system|FILE      connect by TLS; certificates are signed by an authority of the system, or of the PEM file
//
// It reads the files. Errors: CodeBadArgument.
func ParseURL(text string) (Config, error) {
	cfg, options, err := splitURL(text)
	if err != nil {
		return Config{}, err
	}
	for name, values := range options {
		if len(values) > 1 {
			return Config{}, core.Errorf(core.CodeBadArgument, "option %q is given %d times in a Cassandra URL; give it once", name, len(values))
		}
		if err := cfg.setOption(name, values[0]); err != nil {
			return Config{}, err
		}
	}
	if (cfg.Username == "") != (cfg.Password == "") {
		return Config{}, core.Errorf(core.CodeBadArgument, "a Cassandra URL needs both a user and the option password-file, or neither")
	}
	return cfg.withDefaults()
}

// CheckURL reports what is wrong with a URL, without the files that it names: CodeBadArgument.
func CheckURL(text string) error {
	cfg, given, err := splitURL(text)
	if err != nil {
		return err
	}
	for name := range given {
		if !slices.Contains(options, name) {
			return unknownOption(name)
		}
	}
	_, err = cfg.withDefaults()
	return err
}

// CheckKeyspace reports CodeBadArgument unless a URL names its keyspace: for what cannot be undone once it has the
// wrong one.
func CheckKeyspace(text string) error {
	cfg, _, err := splitURL(text)
	if err == nil && cfg.Keyspace == "" {
		err = core.Errorf(core.CodeBadArgument, "the Cassandra URL names no keyspace; write it after the hosts, like %s%s/columba", Scheme, strings.Join(cfg.Hosts, ","))
	}
	return err
}

func unknownOption(name string) error {
	return core.Errorf(core.CodeBadArgument, "option %q of a Cassandra URL is unknown; use local, password-file or tls", name)
}

// splitURL reads all of a URL but its options.
func splitURL(text string) (cfg Config, options url.Values, err error) {
	rest, ok := strings.CutPrefix(text, Scheme)
	if !ok {
		return cfg, nil, core.Errorf(core.CodeBadArgument, "a Cassandra URL begins with %s; write it like %s10.0.0.1,10.0.0.2/columba", Scheme, Scheme)
	}
	rest, query, _ := strings.Cut(rest, "?")
	if tellsPassword(rest, query) {
		return cfg, nil, core.Errorf(core.CodeBadArgument, "a Cassandra URL has a password, which others can see; put it into a file, and name the file with the option password-file")
	}
	if options, err = url.ParseQuery(query); err != nil {
		return cfg, nil, core.Errorf(core.CodeBadArgument, "the options of a Cassandra URL have a percent sign without two hexadecimal digits, or a semicolon; write %%25 and %%3B for them")
	}
	hosts, keyspace, _ := strings.Cut(rest, "/")
	if user, after, ok := strings.Cut(hosts, "@"); ok {
		cfg.Username, hosts = user, after
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if host = strings.TrimSpace(host); host == "" {
			return cfg, nil, core.Errorf(core.CodeBadArgument, "a Cassandra URL names an empty host; write it like %s10.0.0.1,10.0.0.2/columba", Scheme)
		}
		cfg.Hosts = append(cfg.Hosts, withPort(host))
	}
	cfg.Keyspace = keyspace
	return cfg, options, nil
}

// tellsPassword reports whether a part of a URL may be a password. It may have any character: so errors do not name
// parts of such a URL.
func tellsPassword(rest, query string) bool {
	if user, _, ok := strings.Cut(rest, "@"); ok {
		return strings.ContainsAny(user, ":/")
	}
	if !strings.Contains(query, "@") {
		return false
	}
	for part := range strings.SplitSeq(query, "&") { // the name of a file may have an @
		if name, _, _ := strings.Cut(part, "="); !slices.Contains(options, name) {
			return true
		}
	}
	return false
}

// options of a URL.
var options = []string{"local", "password-file", "tls"}

func (c *Config) setOption(name, value string) error {
	switch name {
	case "local":
		c.Local = withPort(value)
		return nil
	case "password-file":
		text, err := readFile(value, maxPassword)
		if err != nil {
			return core.Errorf(core.CodeBadArgument, "password of the Cassandra user: %w", err)
		}
		if c.Password = strings.TrimRight(string(text), "\r\n"); c.Password == "" {
			return core.Errorf(core.CodeBadArgument, "password file %s is empty", value)
		}
		return nil
	case "tls":
		authorities, err := authoritiesOf(value)
		c.TLS = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
		return err
	}
	return unknownOption(name)
}

// authoritiesOf reads a PEM file; nil for those of the system.
func authoritiesOf(file string) (*x509.CertPool, error) {
	if file == "system" {
		return nil, nil
	}
	pem, err := readFile(file, maxCertificates)
	if err != nil {
		return nil, core.Errorf(core.CodeBadArgument, "certificates for Cassandra: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, core.Errorf(core.CodeBadArgument, "file %s has no certificate in PEM", file)
	}
	return pool, nil
}

// withPort adds the default port to a host without one.
func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), defaultPort)
}
