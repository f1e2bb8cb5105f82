package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"calico-cni/pkg/datastore"
)

const (
	// requestTimeout bounds every single request inside the call's deadline.
	requestTimeout = 15 * time.Second
	// secondTry is the wait before a read is repeated.
	secondTry = 100 * time.Millisecond
	// slowDown is the wait that a server asks for without saying how long.
	slowDown = time.Second

	contentJSON  = "application/json"
	contentPatch = "application/strategic-merge-patch+json"
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	metadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	// A server answers in the first way that it knows.
	tableOrMetadata = "application/json;as=Table;g=meta.k8s.io;v=v1," + metadataList
)

// request is one request to the API server.
type request struct {
	// doing says for messages what it is about: "reading the block 10.0.0.0/26".
	doing string
	// verb and resource are what the role of the plugin must allow.
	verb     string
	resource string

	method      string
	path        string
	query       url.Values
	body        []byte
	contentType string
	accept      string
}

func (r request) writes() bool { return r.method != http.MethodGet }

// reply is an answer of the server, good or bad.
type reply struct {
	status     int
	retryAfter time.Duration
	body       []byte
}

func (r reply) good() bool { return r.status >= 200 && r.status < 300 }

// progress is how far a request came before it failed.
type progress int32

const (
	// nowhere: there was no connection. A server that refuses one does so again.
	nowhere progress = iota
	// connected: there was one, but it ended before any of the request was
	// written, such as when a request beside it broke it.
	connected
	// written: the server may have acted on it.
	written
)

// sending is a request on its way: what has been tried already.
type sending struct {
	request
	store   *Store
	conn    *connection
	started time.Time
	// renewed: the credentials were read again; repeated: it was sent again.
	renewed, repeated bool
}

// send carries a request out. It is repeated when the server did nothing with
// it: on 429 as long as the deadline allows, on 401 once, after the credentials
// were read again. On a failure that may pass a read is repeated once, and so is
// a write of which nothing left this process.
func (s *Store) send(ctx context.Context, r request) ([]byte, error) {
	f := sending{request: r, store: s, conn: s.current.get(), started: time.Now()}
	for {
		if ctx.Err() != nil {
			return nil, f.failure(datastore.Unreachable, context.Cause(ctx))
		}
		answer, came, err := f.attempt(ctx)
		switch {
		case err != nil && f.mayRepeat(ctx, came):
			err = f.wait(ctx, secondTry)
		case err != nil:
			return nil, f.broken(came, err)
		case answer.good():
			return answer.body, nil
		case answer.status == http.StatusUnauthorized && !f.renewed:
			err = f.renew(answer)
		case answer.status == http.StatusTooManyRequests:
			err = f.slowDown(ctx, answer)
		case answer.status >= 500 && f.mayRepeat(ctx, written):
			err = f.wait(ctx, max(secondTry, answer.retryAfter))
		default:
			return nil, f.refused(answer)
		}
		if err != nil {
			return nil, err
		}
	}
}

// mayRepeat allows a second try, once, to what the server has not acted on: a
// read, or what did not reach it.
func (f *sending) mayRepeat(ctx context.Context, came progress) bool {
	harmless := came == connected || came == written && !f.writes()
	if !harmless || f.repeated || ctx.Err() != nil || time.Since(f.started) >= requestTimeout {
		return false
	}
	f.repeated = true
	return true
}

func (f *sending) wait(ctx context.Context, d time.Duration) error {
	if err := pause(ctx, d); err != nil {
		return f.failure(datastore.Unreachable, err)
	}
	return nil
}

// slowDown waits as long as the server asks for, if there is time.
func (f *sending) slowDown(ctx context.Context, answer reply) error {
	wait := answer.retryAfter
	if wait == 0 {
		wait = slowDown
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return f.failure(datastore.Unreachable, fmt.Errorf("%w; it asks to wait %v, but there is no time left for that", answer.err(), wait))
	}
	return f.wait(ctx, wait)
}

// renew reads the credentials again: they may have been replaced since.
func (f *sending) renew(answer reply) error {
	conn, err := f.store.current.renew(f.conn)
	if err != nil {
		return f.failure(datastore.Refused, fmt.Errorf("%w; reading the credentials again: %w", answer.err(), err))
	}
	f.conn, f.renewed = conn, true
	return nil
}

// attempt sends the request once.
func (f *sending) attempt(ctx context.Context) (reply, progress, error) {
	if err := f.store.rate.wait(ctx); err != nil {
		return reply{}, nowhere, err
	}
	select {
	case f.store.slots <- struct{}{}:
		defer func() { <-f.store.slots }()
	case <-ctx.Done():
		return reply{}, nowhere, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errors.New("no answer within 15 s"))
	defer cancel()
	var came atomic.Int32
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:      func(httptrace.GotConnInfo) { came.CompareAndSwap(int32(nowhere), int32(connected)) },
		WroteHeaders: func() { came.Store(int32(written)) },
	})
	httpRequest, err := f.build(traced)
	if err != nil {
		return reply{}, nowhere, err
	}
	// Not a http.Client: a redirect would carry the credentials elsewhere.
	response, err := f.conn.authenticated.RoundTrip(httpRequest)
	if err != nil {
		return reply{}, progress(came.Load()), because(ctx, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, written, because(ctx, err)
	}
	return reply{status: response.StatusCode, retryAfter: retryAfter(response.Header), body: body}, written, nil
}

// because prefers what ended the context to what the transport makes of it.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (f *sending) build(ctx context.Context) (*http.Request, error) {
	target := *f.conn.server
	target.Path, target.RawPath = "", ""
	address := target.String() + f.conn.server.EscapedPath() + f.path
	if len(f.query) > 0 {
		address += "?" + f.query.Encode()
	}
	var body io.Reader
	if f.body != nil {
		body = bytes.NewReader(f.body)
	}
	out, err := http.NewRequestWithContext(ctx, f.method, address, body)
	if err != nil {
		return nil, err
	}
	accept := f.accept
	if accept == "" {
		accept = contentJSON
	}
	out.Header.Set("Accept", accept)
	if f.body != nil {
		out.Header.Set("Content-Type", f.contentType)
	}
	return out, nil
}

// retryAfter is in seconds; the server never writes a date.
func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
