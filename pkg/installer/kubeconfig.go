package installer

import (
	"encoding/base64"
	"fmt"
	"time"
)

// kubeconfig is the text of a kubeconfig (network plugin contract 11). JSON's
// quoting is YAML's too.
func kubeconfig(server string, authority []byte, token string) []byte {
	trust := "insecure-skip-tls-verify: true"
	if len(authority) > 0 {
		trust = "certificate-authority-data: " + base64.StdEncoding.EncodeToString(authority)
	}
	return fmt.Appendf(nil, `# Written by "calico install", which renews the token.
apiVersion: v1
kind: Config
clusters:
- name: local
  cluster:
    server: %s
    %s
users:
- name: calico
  user:
    token: %s
contexts:
- name: calico-context
  context:
    cluster: local
    user: calico
current-context: calico-context
`, quote(server), trust, quote(token))
}

const (
	// tokenLife is how long a token is asked for; the server may give less.
	tokenLife = 24 * time.Hour
	// soonest is the least time between two renewals.
	soonest = 5 * time.Second
	// latestRetry is how long a renewal that failed waits at most.
	latestRetry = time.Minute
)

// renewal is how long to wait before a token is renewed: a quarter of the time
// it has left, and by chance (0 to 1) up to the same again, so that the nodes
// of a cluster do not come all at once.
func renewal(left time.Duration, chance float64) time.Duration {
	quarter := left / 4
	return max(soonest, quarter+time.Duration(chance*float64(quarter)))
}

// retry is how long to wait after a renewal that failed.
func retry(left time.Duration, chance float64) time.Duration {
	return min(renewal(left, chance), latestRetry)
}
