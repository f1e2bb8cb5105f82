package etcdtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificates of one server.
type authority struct {
	directory   string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func (s *Server) makeCertificates() error {
	ca := authority{directory: s.directory}
	var err error
	if s.CAFile, _, err = ca.issue("ca", &x509.Certificate{IsCA: true, KeyUsage: x509.KeyUsageCertSign}); err != nil {
		return err
	}
	// etcd connects to itself, so its own certificate is a client's too.
	serverCert, serverKey, err := ca.issue("server", &x509.Certificate{
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:    []string{"localhost"},
	})
	if err != nil {
		return err
	}
	s.CertFile, s.KeyFile, err = ca.issue("client", &x509.Certificate{
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	s.flags = append(s.flags,
		"--cert-file", serverCert, "--key-file", serverKey,
		"--trusted-ca-file", s.CAFile, "--client-cert-auth",
	)
	return err
}

// issue writes a certificate and its key as PEM files. The first one signs
// itself and all others.
func (a *authority) issue(name string, template *x509.Certificate) (certFile, keyFile string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", fmt.Errorf("making the key of %s: %w", name, err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.Subject = pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	template.BasicConstraintsValid = true
	if a.certificate == nil {
		a.certificate, a.key = template, key
	}
	body, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return "", "", fmt.Errorf("signing the certificate of %s: %w", name, err)
	}
	keyBody, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return "", "", fmt.Errorf("encoding the key of %s: %w", name, err)
	}
	if certFile, err = a.write(name+".crt", "CERTIFICATE", body); err != nil {
		return "", "", err
	}
	keyFile, err = a.write(name+".key", "EC PRIVATE KEY", keyBody)
	return certFile, keyFile, err
}

func (a *authority) write(name, kind string, body []byte) (string, error) {
	path := filepath.Join(a.directory, name)
	return path, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: body}), 0o600)
}
