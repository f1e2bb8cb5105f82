package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"
)

// tlsConfig loads the certificates. Its errors name the key of the
// configuration and the file.
func (o Options) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("etcd_ca_cert_file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("etcd_ca_cert_file: %s holds no PEM certificate", o.CAFile)
		}
	}
	if o.CertFile == "" && o.KeyFile == "" {
		return config, nil
	}
	certificate, err := o.keyPair()
	if err != nil {
		return nil, err
	}
	config.Certificates = []tls.Certificate{certificate}
	return config, nil
}

// certificateEnd is when the client's certificate ends, or zero.
func certificateEnd(config *tls.Config) time.Time {
	if config == nil || len(config.Certificates) == 0 || config.Certificates[0].Leaf == nil {
		return time.Time{}
	}
	return config.Certificates[0].Leaf.NotAfter
}

func (o Options) keyPair() (tls.Certificate, error) {
	if o.CertFile == "" || o.KeyFile == "" {
		return tls.Certificate{}, errors.New("etcd_cert_file and etcd_key_file go together: one of them is not set")
	}
	certPEM, err := os.ReadFile(o.CertFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("etcd_cert_file: %w", err)
	}
	keyPEM, err := os.ReadFile(o.KeyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("etcd_key_file: %w", err)
	}
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("etcd_cert_file %s with etcd_key_file %s: %w", o.CertFile, o.KeyFile, err)
	}
	return certificate, nil
}
