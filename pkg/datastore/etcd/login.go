package etcd

import (
	"context"
	"errors"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"
)

// login trades a user's password for a token when the first request needs it.
// The client library would do so while connecting, waiting without regard to
// the caller's deadline.
type login struct {
	auth               pb.AuthClient
	username, password string

	mu    sync.Mutex
	token string
}

// attach returns a context whose requests carry the token.
func (l *login) attach(ctx context.Context) (context.Context, error) {
	if l.username == "" || l.password == "" {
		return ctx, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == "" {
		response, err := l.auth.Authenticate(ctx, &pb.AuthenticateRequest{Name: l.username, Password: l.password})
		err = rpctypes.Error(err)
		if errors.Is(err, rpctypes.ErrAuthNotEnabled) {
			return ctx, nil
		}
		if err != nil {
			return nil, err
		}
		l.token = response.Token
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, l.token), nil
}

// expired reports whether a request failed because of the token, which it then
// forgets, or because users were changed meanwhile. The server looks at both
// before it does anything, so that request may be repeated.
func (l *login) expired(err error) bool {
	if errors.Is(err, rpctypes.ErrAuthOldRevision) {
		return true
	}
	if !errors.Is(err, rpctypes.ErrInvalidAuthToken) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.token = ""
	return l.username != "" && l.password != ""
}
