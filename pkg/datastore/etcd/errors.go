package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"calico-cni/pkg/datastore"
)

func unavailable(reason datastore.Reason, doing string, err error) error {
	return &datastore.UnavailableError{Reason: reason, Doing: doing, Err: err}
}

// failure explains a failed request. mayHave is true if it is a write that
// left this process.
func (s *Store) failure(doing string, waited time.Duration, mayHave bool, err error) error {
	doing = fmt.Sprintf("%s etcd at %s, after %v", doing, strings.Join(s.endpoints, ", "), waited.Round(time.Millisecond))
	switch {
	case refused(err):
		return unavailable(datastore.Refused, doing, err)
	case mayHave && !rejected(err):
		return unavailable(datastore.OutcomeUnknown, doing, fmt.Errorf("whether it was written is not known: %w", err))
	}
	if hint := schemeHint(err); hint != "" {
		err = fmt.Errorf("%w (%s)", err, hint)
	}
	return unavailable(datastore.Unreachable, doing, err)
}

// codeOf is the gRPC code of an error of the client, whatever its type.
func codeOf(err error) codes.Code {
	var etcdErr rpctypes.EtcdError
	switch {
	case errors.As(err, &etcdErr):
		return etcdErr.Code()
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	}
	return status.Code(err)
}

// refused reports whether credentials, permissions or certificates are why.
func refused(err error) bool {
	switch codeOf(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		return true
	case codes.InvalidArgument:
		return errors.Is(err, rpctypes.ErrAuthFailed) || errors.Is(err, rpctypes.ErrUserEmpty)
	case codes.Unavailable:
		return aboutCertificates(err.Error())
	}
	return false
}

// aboutCertificates goes by the text: the rejection of a client's certificate
// arrives when the handshake is over, as an error of the connection.
func aboutCertificates(text string) bool {
	return strings.Contains(text, "x509: ") || strings.Contains(text, "certificate") ||
		strings.Contains(text, "tls: handshake failure")
}

// rejected reports whether the server answered that it did nothing.
func rejected(err error) bool {
	switch codeOf(err) {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange, codes.NotFound,
		codes.ResourceExhausted, codes.Unimplemented:
		return true
	}
	return false
}

// passing reports whether another server, or the same one a little later, may
// well answer.
func passing(err error) bool {
	code := codeOf(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// schemeHint tells what the texts of a TLS client at a plain server, and the
// reverse, mean.
func schemeHint(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "first record does not look like a TLS handshake"), strings.Contains(text, "handshake failed: EOF"):
		return "if the server does not speak TLS, its URL begins with http://"
	case strings.Contains(text, "error reading server preface"):
		return "if the server speaks TLS, its URL begins with https://"
	}
	return ""
}
