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
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
)

const (
	// userAgent is what the server's audit log calls the plugins.
	userAgent = "calico-cni"
	// unnamed stands in messages for the names that a kubeconfig gives.
	unnamed = "the configuration"
)

// access is where the server is and what to show it: the options and all files
// they name, read once.
type access struct {
	server *url.URL
	// config holds also what was in the files that it names.
	config *rest.Config
	// tls is nil where the usual rules suffice.
	tls *tls.Config
	// file is where the credentials come from; empty: the options themselves.
	file string
	// ends is when the credentials end; zero: they do not say.
	ends time.Time
}

// load reads everything anew.
func load(o Options) (access, error) {
	picked := chosen{cluster: &api.Cluster{}, user: &api.AuthInfo{}, clusterName: unnamed, userName: unnamed}
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
	picked.cluster.Server = a.server.String()
	if err := a.readToken(picked.user); err != nil {
		return access{}, err
	}
	if a.config, err = restConfig(picked); err != nil {
		return access{}, err
	}
	return a, a.secure(picked)
}

// serviceAccount is not rest.InClusterConfig: a HostProcess container of
// Windows has the account's files elsewhere.
func serviceAccount(o Options) (chosen, error) {
	token := filepath.Join(o.ServiceAccountDir, "token")
	picked := chosen{
		cluster: &api.Cluster{CertificateAuthority: filepath.Join(o.ServiceAccountDir, "ca.crt")},
		user:    &api.AuthInfo{TokenFile: token},
		file:    token,

		clusterName: unnamed, userName: unnamed,
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
	c, u := picked.cluster, picked.user
	replace(&c.Server, o.Server)
	if replace(&c.CertificateAuthority, o.CAFile) {
		c.CertificateAuthorityData = nil
	}
	c.InsecureSkipTLSVerify = c.InsecureSkipTLSVerify || o.InsecureSkipTLSVerify
	if replace(&u.Token, o.Token) {
		u.TokenFile, u.Username, u.Password, picked.file = "", "", "", ""
	}
	if replace(&u.ClientCertificate, o.CertFile) {
		u.ClientCertificateData, picked.file = nil, o.CertFile
	}
	if replace(&u.ClientKey, o.KeyFile) {
		u.ClientKeyData = nil
	}
}

// serverURL accepts an IPv4 address in brackets, as old installers wrote it,
// and a URL without a scheme, of which clientcmd would take TLS away.
func serverURL(c *api.Cluster) (*url.URL, error) {
	text := c.Server
	if !strings.Contains(text, "://") {
		scheme := "http://"
		if c.CertificateAuthority != "" || len(c.CertificateAuthorityData) > 0 || c.InsecureSkipTLSVerify {
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
	server.User, server.RawQuery, server.Fragment = nil, "", ""
	server.Path = strings.TrimSuffix(server.Path, "/")
	return server, nil
}

// readToken puts the token into the user. A token file wins over the token
// beside it: it is the one that is renewed.
func (a *access) readToken(u *api.AuthInfo) error {
	if u.TokenFile != "" {
		text, err := os.ReadFile(u.TokenFile)
		switch {
		case err == nil && len(strings.TrimSpace(string(text))) > 0:
			u.Token, a.file = strings.TrimSpace(string(text)), u.TokenFile
		case u.Token == "" && err != nil:
			return fmt.Errorf("reading the token: %w", err)
		case u.Token == "":
			return fmt.Errorf("token file %s is empty", describeFile(u.TokenFile))
		}
		u.TokenFile = ""
	}
	a.ends = tokenEnd(u.Token)
	return nil
}

// restConfig has the cluster and the user checked and made into the form that
// package rest takes.
func restConfig(picked chosen) (*rest.Config, error) {
	c, u := *picked.cluster, *picked.user
	// clientcmd quotes the URL, which may hold a password.
	if proxy, err := url.Parse(c.ProxyURL); err != nil || c.ProxyURL != "" && !slices.Contains([]string{"http", "https", "socks5"}, proxy.Scheme) {
		return nil, fmt.Errorf("%s: proxy-url is not a URL: write http://host:port, or https or socks5", source(picked.file))
	}
	// What is in the kubeconfig itself wins over a file; clientcmd refuses both.
	preferContent(c.CertificateAuthorityData, &c.CertificateAuthority)
	preferContent(u.ClientCertificateData, &u.ClientCertificate)
	preferContent(u.ClientKeyData, &u.ClientKey)
	if c.InsecureSkipTLSVerify {
		c.CertificateAuthority, c.CertificateAuthorityData = "", nil
	}
	const context = "chosen"
	config, err := clientcmd.NewDefaultClientConfig(api.Config{
		Clusters:       map[string]*api.Cluster{picked.clusterName: &c},
		AuthInfos:      map[string]*api.AuthInfo{picked.userName: &u},
		Contexts:       map[string]*api.Context{context: {Cluster: picked.clusterName, AuthInfo: picked.userName}},
		CurrentContext: context,
	}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source(picked.file), err)
	}
	config.UserAgent = userAgent
	// A server without TLS is a proxy beside the plugin; to such a one clientcmd
	// would show nothing.
	config.BearerToken, config.Username, config.Password = u.Token, u.Username, u.Password
	return config, nil
}

func preferContent(content []byte, file *string) {
	if len(content) > 0 {
		*file = ""
	}
}

// secure prepares TLS. The files are read here and not again in each
// handshake: the credentials are renewed as a whole.
func (a *access) secure(picked chosen) error {
	c := a.config
	if err := rest.LoadTLSFiles(c); err != nil {
		return fmt.Errorf("%s: %w", source(picked.file), err)
	}
	// Of nothing the system's authorities would be made.
	if c.CAFile != "" && len(c.CAData) == 0 {
		return a.distrust(picked)
	}
	certificateFile := orFile(c.CertFile, picked.file)
	if c.CertFile != "" || len(c.CertData) > 0 {
		certificates, err := cert.ParseCertsPEM(c.CertData)
		if err != nil {
			return fmt.Errorf("%s: client certificate: %w", source(certificateFile), err)
		}
		a.ends = earlier(certificates[0].NotAfter, a.ends)
		if a.file == picked.file {
			a.file = certificateFile
		}
	}
	var err error
	if a.tls, err = rest.TLSConfigFor(c); err == nil {
		return nil
	}
	if len(c.CAData) > 0 && !x509.NewCertPool().AppendCertsFromPEM(c.CAData) {
		return a.distrust(picked)
	}
	return fmt.Errorf("%s: client certificate and key: %w", source(certificateFile), err)
}

func (a *access) distrust(picked chosen) error {
	return fmt.Errorf("%s holds no certificate authority in PEM form", source(orFile(a.config.CAFile, picked.file)))
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

// source names where credentials come from: the options, if there is no file.
func source(file string) string {
	if file == "" {
		return unnamed
	}
	return describeFile(file)
}

// describe says for a message where the credentials come from, how old they
// are and when they end.
func (a access) describe() string {
	text := "the credentials of the configuration"
	switch {
	case a.file != "":
		text = "the credentials of " + describeFile(a.file)
	case a.config.BearerToken == "" && a.config.Username == "" && len(a.config.CertData) == 0:
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
