package plugin

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// statusPause is the time between two looks for the policy agent's file. A look
// costs less than watching the directory would.
const statusPause = 20 * time.Millisecond

// awaitPolicy waits until the policy agent says that it has set up the
// endpoint (network plugin contract 6.2 step 13). In vain is only a warning:
// the agent drops traffic until it is ready.
func (a *addition) awaitPolicy(ctx context.Context) {
	limit := time.Duration(a.Conf.PolicySetupTimeoutSeconds) * time.Second
	if limit <= 0 || !a.ID.IsKubernetes() || a.made == nil || a.made.Second {
		return
	}
	if a.GOOS == "windows" {
		a.Log.Warn("policy_setup_timeout_seconds has no effect on Windows")
		return
	}
	file := filepath.Join(a.Conf.EndpointStatusDir, a.statusFile())
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	looks := time.NewTicker(statusPause)
	defer looks.Stop()
	for {
		if _, err := os.Stat(file); err == nil {
			return
		}
		select {
		case <-ctx.Done():
			a.Log.Warn("the policy agent has not said that it set up the endpoint; going on", "file", file, "waited", limit)
			return
		case <-looks.C:
		}
	}
}

// statusFile is the name under which the policy agent tells of an endpoint
// (datastore contract 4.12).
func (a *addition) statusFile() string {
	endpoint := a.Call.IfName
	if a.view.record != nil {
		endpoint = a.view.record.Spec.Endpoint
	}
	fields := []string{a.ID.Orchestrator, a.ID.Namespace + "/" + a.ID.Pod, endpoint}
	for i, field := range fields {
		fields[i] = url.PathEscape(field)
	}
	return strings.Join(fields, " ")
}
