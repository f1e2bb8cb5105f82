package kubernetes

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"calico-cni/pkg/datastore"
)

// status is what the server says of a request that failed.
type status struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Details struct {
		Name   string `json:"name"`
		Causes []struct {
			Field string `json:"field"`
		} `json:"causes"`
	} `json:"details"`
}

func (r reply) details() status {
	var s status
	if json.Unmarshal(r.body, &s) != nil {
		return status{} // not from an API server: a proxy's page, say
	}
	return s
}

// err is the answer as an error.
func (r reply) err() error {
	text := fmt.Sprintf("HTTP %d %s", r.status, http.StatusText(r.status))
	if message := r.details().Message; message != "" {
		text += ": " + message
	}
	return errors.New(text)
}

// stale is a refusal because of what the object is now: ErrNotFound, ErrExists
// or ErrConflict. Writers turn it into a conflict that names the object.
type stale struct {
	kind error
	text error
}

func (e *stale) Error() string { return fmt.Sprintf("%v: %v", e.kind, e.text) }

func (e *stale) Unwrap() error { return e.kind }

// refused explains an answer that is no success (datastore contract 5).
func (f *sending) refused(answer reply) error {
	details := answer.details()
	switch answer.status {
	case http.StatusNotFound:
		return f.notFound(answer, details)
	case http.StatusConflict:
		return &stale{conflictKind(details), answer.err()}
	case http.StatusUnprocessableEntity:
		if kind := invalidKind(details); kind != nil {
			return &stale{kind, answer.err()}
		}
	case http.StatusUnauthorized:
		return f.failure(datastore.Refused, fmt.Errorf("%w; %s", answer.err(), f.conn.describe()))
	case http.StatusForbidden:
		return f.failure(datastore.Refused, fmt.Errorf("the role of the plugin does not allow to %s %s: %w", f.verb, f.resource, answer.err()))
	case http.StatusGone:
		return &stale{errExpired, answer.err()}
	}
	if answer.status >= 500 && f.writes() {
		return f.unknown(answer.err())
	}
	return f.failure(datastore.Unreachable, answer.err())
}

// errExpired: the rest of a list cannot be had any more.
var errExpired = errors.New("the list has expired")

// notFound tells a missing object from a missing kind of objects, whose error
// names none.
func (f *sending) notFound(answer reply, details status) error {
	if details.Details.Name != "" {
		return &stale{datastore.ErrNotFound, answer.err()}
	}
	return f.failure(datastore.Undefined, fmt.Errorf(
		"%w %s: is its CustomResourceDefinition installed? (%w)", errUnknownResource, f.resource, answer.err()))
}

// errUnknownResource: no object is missing, but the kind of objects.
var errUnknownResource = errors.New("the server does not know the resource")

func conflictKind(details status) error {
	switch {
	case details.Reason == "AlreadyExists":
		return datastore.ErrExists
	case strings.Contains(details.Message, "UID in precondition"):
		return datastore.ErrNotFound
	}
	return datastore.ErrConflict
}

// invalidKind is nil unless only the identity or only the revision is wrong.
func invalidKind(details status) error {
	kinds := map[string]error{"metadata.uid": datastore.ErrNotFound, "metadata.resourceVersion": datastore.ErrConflict}
	var kind error
	for _, cause := range details.Details.Causes {
		this := kinds[cause.Field]
		if this == nil || kind != nil && kind != this {
			return nil
		}
		kind = this
	}
	return kind
}

// broken explains a request that got no answer.
func (f *sending) broken(came progress, err error) error {
	switch {
	case aboutCertificates(err):
		return f.failure(datastore.Refused, fmt.Errorf("%w; %s", err, f.conn.describe()))
	case came == written && f.writes():
		return f.unknown(err)
	}
	if strings.Contains(err.Error(), "first record does not look like a TLS handshake") {
		err = fmt.Errorf("%w (if the server does not speak TLS, its URL begins with http://)", err)
	}
	return f.failure(datastore.Unreachable, err)
}

func aboutCertificates(err error) bool {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid) ||
		strings.Contains(err.Error(), "remote error: tls:")
}

func (f *sending) unknown(err error) error {
	return f.failure(datastore.OutcomeUnknown, fmt.Errorf("whether it was written is not known: %w", err))
}

func (f *sending) failure(reason datastore.Reason, err error) error {
	waited := time.Since(f.started).Round(time.Millisecond)
	return unavailable(reason, fmt.Sprintf("%s, Kubernetes API server %s, after %v", f.doing, f.conn.server, waited), err)
}

func unavailable(reason datastore.Reason, doing string, err error) error {
	return &datastore.UnavailableError{Reason: reason, Doing: doing, Err: err}
}
