package plugin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"calico-cni/pkg/cnierr"
)

// A readiness gate is asked at once and then every gatePause, gateTime in all;
// one question may take gateTimeout (network plugin contract 6.1 step 8).
const (
	gatePause   = 5 * time.Second
	gateTimeout = 5 * time.Second
	gateTime    = 30 * time.Second
)

// awaitGates waits for each readiness gate in order.
func (s *serving) awaitGates(ctx context.Context) error {
	if len(s.Conf.ReadinessGates) == 0 {
		return nil
	}
	client := &http.Client{Timeout: gateTimeout}
	defer client.CloseIdleConnections()
	for _, gate := range s.Conf.ReadinessGates {
		if err := awaitGate(ctx, client, gate); err != nil {
			return err
		}
	}
	return nil
}

func awaitGate(ctx context.Context, client *http.Client, gate string) error {
	ctx, cancel := context.WithTimeout(ctx, gateTime)
	defer cancel()
	ticker := time.NewTicker(gatePause)
	defer ticker.Stop()
	var answer error
	for {
		err := askGate(ctx, client, gate)
		if err == nil {
			return nil
		}
		// What the end of the wait cut off says less than the answer before.
		if answer == nil || ctx.Err() == nil {
			answer = err
		}
		select {
		case <-ctx.Done():
			return cnierr.New(cnierr.TryAgainLater, "readiness gate %s was not ready within %v: %w; check the service behind it", gate, gateTime, answer)
		case <-ticker.C:
		}
	}
}

// askGate is nil for an answer from 200 to 399 after redirects.
func askGate(ctx context.Context, client *http.Client, gate string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, gate, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16)); err != nil {
		return err
	}
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("it answered %s", response.Status)
	}
	return nil
}
