package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"calico-cni/pkg/datastore"
)

// ErrNoTokenRequest means that the server cannot issue tokens of service
// accounts.
var ErrNoTokenRequest = errors.New("the API server knows no TokenRequest")

// RequestToken asks for a token of a service account that is for the server
// itself and lives this long; the server may shorten that. When it ends is told
// by this host's clock, whatever the server's says. No plugin needs it.
func (s *Store) RequestToken(ctx context.Context, namespace, account string, life time.Duration) (token string, ends time.Time, err error) {
	name := namespace + "/" + account
	body, err := json.Marshal(map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"spec": map[string]any{"expirationSeconds": int64(life / time.Second)},
	})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("encoding the request for a token of %s: %w", name, err)
	}
	answer, err := s.send(ctx, request{
		doing: "requesting a token of the service account " + name,
		verb:  "create", resource: "serviceaccounts/token",
		method: http.MethodPost,
		path:   "/api/v1/namespaces/" + url.PathEscape(namespace) + "/serviceaccounts/" + url.PathEscape(account) + "/token",
		body:   body, contentType: contentJSON,
	})
	switch {
	case errors.Is(err, errUnknownResource):
		return "", time.Time{}, fmt.Errorf("%w (%w)", ErrNoTokenRequest, err)
	case errors.Is(err, datastore.ErrNotFound):
		return "", time.Time{}, fmt.Errorf("requesting a token: there is no service account %s: create it, or name another one: %w", name, err)
	case err != nil:
		return "", time.Time{}, err
	}
	var issued struct {
		Metadata struct {
			Created time.Time `json:"creationTimestamp"`
		} `json:"metadata"`
		Status struct {
			Token string    `json:"token"`
			Ends  time.Time `json:"expirationTimestamp"`
		} `json:"status"`
	}
	// The cause is not wrapped: it may quote a part of the token.
	if json.Unmarshal(answer, &issued) != nil || issued.Status.Token == "" {
		return "", time.Time{}, unavailable(datastore.Unreachable, "requesting a token of the service account "+name,
			errors.New("the answer holds no token: is it an API server that answers?"))
	}
	ends = issued.Status.Ends
	if created := issued.Metadata.Created; !created.IsZero() && !ends.IsZero() {
		ends = time.Now().Add(ends.Sub(created))
	}
	return issued.Status.Token, ends, nil
}
