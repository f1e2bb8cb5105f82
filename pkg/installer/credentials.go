package installer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/kubernetes"
)

// credentials are what the plugins show to the API server, and what they know
// it by.
type credentials struct {
	token     string
	authority []byte
	ends      time.Time
}

const (
	// requestTime bounds getting credentials once.
	requestTime = 30 * time.Second
	// patience is how long the first credentials are waited for: on a node that
	// boots the way to the API server may come up after us.
	patience = 2 * time.Minute
	askAgain = 2 * time.Second
)

// firstCredentials tries for a while, unless the server has refused.
func (in *Installer) firstCredentials(ctx context.Context) (credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for said := false; ; {
		c, err := in.credentials(ctx)
		var unavailable *datastore.UnavailableError
		if err == nil || !errors.As(err, &unavailable) || unavailable.Reason == datastore.Refused || ctx.Err() != nil {
			return c, err
		}
		if !said {
			in.Log.Warn("the API server does not answer yet; trying again", "error", err)
			said = true
		}
		select {
		case <-ctx.Done():
			return credentials{}, err
		case <-time.After(askAgain):
		}
	}
}

// credentials reads the pod's own credentials anew and gets with them a token
// of the plugins' account. A server that issues none leaves the pod's own.
func (in *Installer) credentials(ctx context.Context) (credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	read := func(name string) (string, error) {
		body, err := os.ReadFile(filepath.Join(in.Layout.AccountDir, name))
		if err != nil {
			return "", fmt.Errorf("reading the pod's service account: %w", err)
		}
		return string(body), nil
	}
	var c credentials
	if !in.Settings.SkipTLSVerify {
		authority, err := read("ca.crt")
		if err != nil {
			return credentials{}, err
		}
		c.authority = []byte(authority)
	}
	namespace, err := read("namespace")
	if err != nil {
		return credentials{}, err
	}
	store, err := kubernetes.Open(ctx, kubernetes.Options{
		Server: in.Settings.Server, ServiceAccountDir: in.Layout.AccountDir, InsecureSkipTLSVerify: in.Settings.SkipTLSVerify,
	})
	if err != nil {
		return credentials{}, err
	}
	defer store.Close()
	c.token, c.ends, err = store.RequestToken(ctx, strings.TrimSpace(namespace), in.Settings.Account, tokenLife)
	if !errors.Is(err, kubernetes.ErrNoTokenRequest) {
		return c, err
	}
	in.Log.Warn("the plugins get this pod's own token", "reason", err)
	own, err := read("token")
	if err != nil {
		return credentials{}, err
	}
	_, c.ends = store.Credentials()
	c.token = strings.TrimSpace(own)
	return c, nil
}
