package kubernetes

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
)

// issue returns a certificate and its key as PEM.
func issue(t *testing.T, name string, ends time.Time) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: ends,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	body, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyBody, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, body []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: body}))
	}
	return encode("CERTIFICATE", body), encode("EC PRIVATE KEY", keyBody)
}

// TestClientCertificates: in files, in the kubeconfig, given explicitly; their
// end is told.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if certificates := r.TLS.PeerCertificates; len(certificates) != 1 || certificates[0].Subject.CommonName != "plugin" {
			refuse(w, 401, "Unauthorized", "Unauthorized", nil)
			return
		}
		handle(w, key.ID, "2")
	})
	s.Server.TLS.ClientAuth = tls.RequestClientCert
	ends := time.Now().Add(time.Hour)
	certificate, private := issue(t, "plugin", ends)
	directory := t.TempDir()
	certFile, keyFile := filepath.Join(directory, "plugin.crt"), filepath.Join(directory, "plugin.key")
	s.write(certFile, certificate)
	s.write(keyFile, private)
	cluster := fmt.Sprintf("server: %q, certificate-authority: %q", s.URL, s.caFile)
	data := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for name, options := range map[string]Options{
		"files":    {Kubeconfig: s.kubeconfig(config(cluster, fmt.Sprintf("client-certificate: %q, client-key: %q", certFile, keyFile)))},
		"inline":   {Kubeconfig: s.kubeconfig(config(cluster, "client-certificate-data: "+data(certificate)+", client-key-data: "+data(private)))},
		"explicit": {Server: s.URL, CAFile: s.caFile, CertFile: certFile, KeyFile: keyFile},
	} {
		options.Group = "crd.projectcalico.org/v1"
		store, err := Open(s.ctx(), options)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := store.Read(s.ctx(), datastore.Get{Key: key}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if file, told := store.Credentials(); file == "" || told.Sub(ends).Abs() > time.Second {
			t.Errorf("%s: credentials of %q end at %v", name, file, told)
		}
		_ = store.Close()
	}
}
