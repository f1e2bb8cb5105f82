package kubernetes

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// access is where the server is and what to show it: the options and all files
// they name, read once.
type access struct {
	server *url.URL
	proxy  *url.URL
	tls    *tls.Config
	// authorization is the header; empty: there is none.
	authorization string
	// file is where the credentials come from; empty: the options themselves.
	file string
	// ends is when the credentials end; zero: they do not say.
	ends time.Time
}

// load reads everything anew.
func load(o Options) (access, error) {
	picked := chosen{}
	var err error
	switch {
	case o.Kubeconfig != "":
		picked, err = readKubeconfig(o.Kubeconfig, o.Context)
	case o.ServiceAccountDir != "":
		picked, err = serviceAccount(o)
	}
	if err != nil {
		return access{}, err
	}
	override(&picked, o)
	a := access{file: picked.file}
	if a.server, err = serverURL(picked.cluster); err != nil {
		return access{}, err
	}
	if picked.cluster.ProxyURL != "" {
		if a.proxy, err = url.Parse(picked.cluster.ProxyURL); err != nil {
			return access{}, errors.New("the kubeconfig's proxy-url is not a URL")
		}
	}
	if err := a.secure(picked); err != nil {
		return access{}, err
	}
	return a, a.authorize(picked.user)
}

func serviceAccount(o Options) (chosen, error) {
	token := filepath.Join(o.ServiceAccountDir, "token")
	picked := chosen{
		cluster: cluster{CAFile: filepath.Join(o.ServiceAccountDir, "ca.crt")},
		user:    user{TokenFile: token},
		file:    token,
	}
	switch {
	case o.ServiceHost != "":
		picked.cluster.Server = "https://" + net.JoinHostPort(o.ServiceHost, o.ServicePort)
	case o.Server == "":
		return chosen{}, errors.New("the pod's environment does not say where the API server is: KUBERNETES_SERVICE_HOST is not set")
	}
	return picked, nil
}

func override(picked *chosen, o Options) {
	replace := func(field *string, value string) bool {
		if value != "" {
			*field = value
		}
		return value != ""
	}
	c, u := &picked.cluster, &picked.user
	replace(&c.Server, o.Server)
	if replace(&c.CAFile, o.CAFile) {
		c.CAData = ""
	}
	c.SkipVerify = c.SkipVerify || o.InsecureSkipTLSVerify
	if replace(&u.Token, o.Token) {
		u.TokenFile, picked.file = "", ""
	}
	if replace(&u.CertFile, o.CertFile) {
		u.CertData, picked.file = "", o.CertFile
	}
	if replace(&u.KeyFile, o.KeyFile) {
		u.KeyData = ""
	}
}

// serverURL accepts an IPv4 address in brackets, as old installers wrote it,
// and a URL without a scheme.
func serverURL(c cluster) (*url.URL, error) {
	text := c.Server
	if !strings.Contains(text, "://") {
		scheme := "http://"
		if c.CAFile != "" || c.CAData != "" || c.SkipVerify {
			scheme = "https://"
		}
		text = scheme + text
	}
	if before, rest, ok := strings.Cut(text, "//["); ok {
		host, after, closed := strings.Cut(rest, "]")
		if addr, err := netip.ParseAddr(host); closed && err == nil && addr.Is4() {
			text = before + "//" + host + after
		}
	}
	server, err := url.Parse(text)
	// The cause is not wrapped: it may quote a part of a password.
	if err != nil || server.Scheme != "http" && server.Scheme != "https" || server.Hostname() == "" {
		return nil, errors.New("the address of the API server is not a URL: write https://host:port")
	}
	server.User = nil
	server.Path = strings.TrimSuffix(server.Path, "/")
	return server, nil
}

// secure prepares TLS.
func (a *access) secure(picked chosen) error {
	c, u := picked.cluster, picked.user
	a.tls = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.SkipVerify, ServerName: c.TLSServerName}
	if err := a.trust(c, picked.file); err != nil {
		return err
	}
	certificate, err := content(u.CertFile, u.CertData, "client certificate", picked.file)
	if err != nil || len(certificate) == 0 {
		return err
	}
	key, err := content(u.KeyFile, u.KeyData, "client key", picked.file)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("%s: client certificate and key: %w", describeFile(orFile(u.CertFile, picked.file)), err)
	}
	a.tls.Certificates = []tls.Certificate{pair}
	a.file = orFile(u.CertFile, picked.file)
	if pair.Leaf != nil {
		a.ends = pair.Leaf.NotAfter
	}
	return nil
}

// trust sets the authority that the server's certificate must verify by;
// without one it is the system's.
func (a *access) trust(c cluster, kubeconfig string) error {
	if c.SkipVerify || c.CAFile == "" && c.CAData == "" {
		return nil
	}
	authority, err := content(c.CAFile, c.CAData, "certificate authority", kubeconfig)
	if err != nil {
		return err
	}
	a.tls.RootCAs = x509.NewCertPool()
	if !a.tls.RootCAs.AppendCertsFromPEM(authority) {
		return fmt.Errorf("%s holds no certificate authority in PEM form", describeFile(orFile(c.CAFile, kubeconfig)))
	}
	return nil
}

// authorize prepares the header. A token file wins over the token beside it:
// it is the one that is renewed.
func (a *access) authorize(u user) error {
	token := u.Token
	if u.TokenFile != "" {
		text, err := os.ReadFile(u.TokenFile)
		switch {
		case err == nil && len(strings.TrimSpace(string(text))) > 0:
			token, a.file = strings.TrimSpace(string(text)), u.TokenFile
		case token == "" && err != nil:
			return fmt.Errorf("reading the token: %w", err)
		case token == "":
			return fmt.Errorf("token file %s is empty", describeFile(u.TokenFile))
		}
	}
	switch {
	case token != "":
		a.authorization = "Bearer " + token
		a.ends = earlier(a.ends, tokenEnd(token))
	case u.Username != "":
		a.authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.Username+":"+u.Password))
	}
	return nil
}

// earlier is the first of two ends, of which either may not be known.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func orFile(file, otherwise string) string {
	if file != "" {
		return file
	}
	return otherwise
}

// content is what a file or the kubeconfig itself holds; the latter wins.
func content(file, data, what, kubeconfig string) ([]byte, error) {
	if data != "" {
		decoded, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return nil, fmt.Errorf("%s: the %s is not in base64", describeFile(kubeconfig), what)
		}
		return decoded, nil
	}
	if file == "" {
		return nil, nil
	}
	body, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the %s: %w", what, err)
	}
	return body, nil
}

// tokenEnd is when a token ends, if it is one that tells.
func tokenEnd(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	var claims struct {
		Expires float64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Expires <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expires), 0)
}

// describeFile names a file and says how old it is.
func describeFile(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return path
	}
	return fmt.Sprintf("%s (written %v ago)", path, time.Since(info.ModTime()).Round(time.Second))
}

// describe says for a message where the credentials come from, how old they
// are and when they end.
func (a access) describe() string {
	text := "the credentials of the configuration"
	switch {
	case a.file != "":
		text = "the credentials of " + describeFile(a.file)
	case a.authorization == "" && len(a.tls.Certificates) == 0:
		return "no credentials were shown"
	}
	if a.ends.IsZero() {
		return text
	}
	if left := time.Until(a.ends).Round(time.Second); left <= 0 {
		return fmt.Sprintf("%s, which ended at %s, %v ago", text, a.ends.UTC().Format(time.RFC3339), -left)
	}
	return fmt.Sprintf("%s, which end at %s", text, a.ends.UTC().Format(time.RFC3339))
}
