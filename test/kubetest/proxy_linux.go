package kubetest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// Hook stands between the plugins and the server: it passes the request on to
// next, or does not.
type Hook func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Exchange is one request that reached the proxy.
type Exchange struct {
	Method, Path, Query string
	Status              int
	Began, Ended        time.Time
}

func (e Exchange) String() string {
	return fmt.Sprintf("%s %s?%s %d", e.Method, e.Path, e.Query, e.Status)
}

// Proxy speaks TLS and HTTP/2 on both sides.
type Proxy struct {
	URL, CAFile string
	// Latency is how long a request takes to get through: requests that are
	// sent together can then be told from those sent one after the other.
	Latency time.Duration

	mu        sync.Mutex
	hook      Hook
	exchanges []Exchange

	close func()
}

// NewProxy starts a proxy before the cluster's server until the test ends.
func (c *Cluster) NewProxy(t testing.TB) *Proxy {
	t.Helper()
	p, err := c.LaunchProxy(filepath.Join(t.TempDir(), "proxy.crt"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// LaunchProxy starts a proxy before the cluster's server until Close, and
// writes what its certificate is verified by to a file.
func (c *Cluster) LaunchProxy(caFile string) (*Proxy, error) {
	target, err := url.Parse(c.URL)
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	p := &Proxy{CAFile: caFile}
	forward := httputil.NewSingleHostReverseProxy(target)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	forward.Transport = transport
	forward.ErrorHandler = func(_ http.ResponseWriter, r *http.Request, _ error) { Cut(r) }
	server := httptest.NewUnstartedServer(p.handler(forward))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // connections are cut on purpose
	server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connectionOf{}, conn)
	}
	server.StartTLS()
	p.URL = server.URL
	p.close = func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(p.CAFile, certificate, 0o600); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// Close ends a proxy that LaunchProxy started.
func (p *Proxy) Close() { p.close() }

// connectionOf is the context key of a request's connection.
type connectionOf struct{}

// Cut closes the connection that a request came on, and with it every other
// request on that connection, and ends the handling of the request.
func Cut(r *http.Request) {
	if conn, ok := r.Context().Value(connectionOf{}).(net.Conn); ok {
		_ = conn.Close() // cut is cut
	}
	panic(http.ErrAbortHandler) // how a handler ends without an answer
}

// Hook replaces the hook; nil passes everything on.
func (p *Proxy) Hook(hook Hook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = hook
}

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets the reverse proxy flush.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (p *Proxy) handler(forward http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := Exchange{Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Began: time.Now()}
		writer := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		p.mu.Lock()
		hook := p.hook
		p.mu.Unlock()
		defer func() {
			e.Status, e.Ended = writer.status, time.Now()
			p.mu.Lock()
			defer p.mu.Unlock()
			p.exchanges = append(p.exchanges, e)
		}()
		if p.Latency > 0 {
			select {
			case <-time.After(p.Latency):
			case <-r.Context().Done():
				return
			}
		}
		if hook == nil {
			forward.ServeHTTP(writer, r)
			return
		}
		hook(writer, r, forward)
	})
}

// Exchanges returns what has come through since the last Forget, in the order
// in which it began.
func (p *Proxy) Exchanges() []Exchange {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Clone(p.exchanges)
	slices.SortFunc(all, func(a, b Exchange) int { return a.Began.Compare(b.Began) })
	return all
}

// Forget empties the log.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exchanges = nil
}

// Rounds counts the requests that were sent one after the other: those that
// overlap count once.
func Rounds(exchanges []Exchange) int {
	rounds := 0
	var end time.Time
	for _, e := range exchanges {
		if !e.Began.Before(end) {
			rounds++
		}
		if e.Ended.After(end) {
			end = e.Ended
		}
	}
	return rounds
}
