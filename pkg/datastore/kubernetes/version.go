package kubernetes

import (
	"context"
	"net/http"
)

// Version fails unless the server can be reached with these credentials; what
// its version is, nobody needs to know.
func (s *Store) Version(ctx context.Context) error {
	_, err := s.send(ctx, request{
		doing: "asking for the version", verb: "get", resource: "/version", method: http.MethodGet, path: "/version",
	})
	return err
}
