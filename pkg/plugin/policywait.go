package plugin

import (
	"context"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

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
	if err := (fileWait{pause: statusPause, watch: watchDirectory}).await(ctx, file); err != nil {
		a.Log.Warn("the policy agent has not said that it set up the endpoint; going on", "file", file, "waited", limit)
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
