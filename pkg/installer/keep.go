package installer

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// keep renews the token in time, and installs anew what changes in the folders
// that it came from, until ctx ends.
func (in *Installer) keep(ctx context.Context, token string) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	notify := func(directory string) <-chan struct{} {
		changed := make(chan struct{}, 1)
		watching.Go(func() {
			if err := watch(ctx, directory, changed); err != nil {
				in.Log.Warn("changes are not noticed any more", "error", err)
			}
		})
		return changed
	}
	var account, tls <-chan struct{}
	if in.inPod {
		account = notify(in.Layout.AccountDir)
	}
	if directory := in.Layout.within(in.Settings.TLSDir); exists(directory) {
		tls = notify(directory)
	}
	timer := time.NewTimer(in.nextRenewal())
	defer timer.Stop()
	if !in.inPod {
		timer.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tls:
			in.Log.Info("the TLS files have changed")
			in.reconfigure(ctx, token)
			continue
		case <-account:
			in.Log.Info("the pod's credentials have changed")
		case <-timer.C:
		}
		var wait time.Duration
		token, wait = in.renew(ctx, token)
		timer.Reset(wait)
	}
}

// left is how long the token lasts. One that does not say lasts as long as we
// asked for.
func (in *Installer) left() time.Duration {
	if in.ends.IsZero() {
		return tokenLife
	}
	return time.Until(in.ends)
}

func (in *Installer) nextRenewal() time.Duration {
	if in.Settings.Refresh > 0 {
		return in.Settings.Refresh
	}
	return renewal(in.left(), rand.Float64())
}

// renew returns the token from now on and the time until the next renewal. The
// old token stays where a new one cannot be had.
func (in *Installer) renew(ctx context.Context, token string) (string, time.Duration) {
	c, err := in.credentials(ctx)
	if err == nil {
		err = in.writeKubeconfig(c)
	}
	if err != nil {
		wait := retry(in.left(), rand.Float64())
		if ctx.Err() == nil {
			in.Log.Error("renewing the token failed", "error", err, "ends", in.ends.UTC().Format(time.RFC3339), "again in", wait.Round(time.Second))
		}
		return token, wait
	}
	if strings.Contains(in.template, "__SERVICEACCOUNT_TOKEN__") {
		in.reconfigure(ctx, c.token)
	}
	return c.token, in.nextRenewal()
}

// reconfigure installs the TLS files and the configuration once more.
func (in *Installer) reconfigure(ctx context.Context, token string) {
	found, err := in.installAssets()
	if err == nil {
		err = in.configure(ctx, found, token)
	}
	if err != nil && ctx.Err() == nil {
		in.Log.Error("installing what has changed failed: what was there stays", "error", err)
	}
}
