package cassandra

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Secured is a node that refuses clients without TLS, and those without a user. It has the user cassandra with the
// password cassandra, who may do everything.
type Secured struct {
	*Node
	Authority string // PEM file of the authority that signed the node's certificate
	Foreign   string // PEM file of an authority that has signed nothing
}

// firstUser is in the log of a node once its first user can log in.
const firstUser = "Created default superuser role"

// Secured starts a node for one test alone. The test is skipped or fails as in Start.
func (n *Nodes) Secured(t *testing.T) Secured {
	t.Helper()
	apart := &Nodes{secured: true}
	t.Cleanup(apart.close)
	node := apart.Start(t)[0]
	return Secured{node, filepath.Join(apart.dir, "authority.pem"), filepath.Join(apart.dir, "foreign.pem")}
}

// secure writes two authorities, and the key and the certificate of a node, into a directory. It returns the options of
// the node.
func secure(dir, ip string) (options []string, err error) {
	authority, err := newAuthority(filepath.Join(dir, "authority.pem"))
	if err != nil {
		return nil, err
	}
	if _, err := newAuthority(filepath.Join(dir, "foreign.pem")); err != nil {
		return nil, err
	}
	keystore := filepath.Join(dir, "node.pem")
	if err := authority.sign(keystore, ip); err != nil {
		return nil, err
	}
	return []string{
		"--yaml", "authenticator: PasswordAuthenticator", "--yaml", "authorizer: CassandraAuthorizer",
		"--yaml", "auth_read_consistency_level: LOCAL_ONE",
		"--yaml", fmt.Sprintf("client_encryption_options: {enabled: true, optional: false, keystore: %q, "+
			"ssl_context_factory: {class_name: org.apache.cassandra.security.PEMBasedSslContextFactory}}", keystore),
		// The first user is there after 10 s by default. A password is hashed in 0.1 s by default, for each connection.
		"--jvm", "-Dcassandra.superuser_setup_delay_ms=500", "--jvm", "-Dcassandra.auth_bcrypt_gensalt_log2_rounds=4",
	}, nil
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority writes the certificate of a new authority into a file.
func newAuthority(file string) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	template := certificate(1, filepath.Base(file))
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return authority{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return authority{cert, key}, errors.Join(err, writePEM(file, &pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// sign writes a new key, and the certificate for an address, into a file.
func (a authority) sign(file, ip string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := certificate(2, "node")
	template.IPAddresses = []net.IP{net.ParseIP(ip)}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	return errors.Join(err, writePEM(file, &pem.Block{Type: "PRIVATE KEY", Bytes: private}, &pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func certificate(serial int64, name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

func writePEM(file string, blocks ...*pem.Block) error {
	var text []byte
	for _, b := range blocks {
		text = append(text, pem.EncodeToMemory(b)...)
	}
	return os.WriteFile(file, text, 0o600)
}
