package kubernetes

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	dialTimeout = 10 * time.Second
	keepAlive   = 30 * time.Second
	idleTimeout = 90 * time.Second
	pingTimeout = 4 * time.Second
	// plainConnections is how many connections there are where HTTP/2 is not
	// spoken and each carries one request at a time.
	plainConnections = 4
)

// connection is an access and the transport that uses it.
type connection struct {
	access
	transport *http.Transport
}

// connect prepares a connection; nothing is sent.
func connect(a access) *connection {
	connections := 1
	if a.server.Scheme == "http" {
		connections = plainConnections
	}
	return &connection{access: a, transport: &http.Transport{
		Proxy: func(r *http.Request) (*url.URL, error) {
			if a.proxy != nil {
				return a.proxy, nil
			}
			return http.ProxyFromEnvironment(r)
		},
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext,
		TLSClientConfig:     a.tls,
		TLSHandshakeTimeout: dialTimeout,
		// The requests of a batch share one HTTP/2 connection: a second
		// handshake would cost more than it gains.
		ForceAttemptHTTP2:   true,
		MaxConnsPerHost:     connections,
		MaxIdleConnsPerHost: connections,
		IdleConnTimeout:     idleTimeout,
		DisableCompression:  true,
		HTTP2: &http.HTTP2Config{
			// A connection that leads nowhere any more is noticed in time for a
			// read to be sent on a new one.
			SendPingTimeout: pingTimeout,
			PingTimeout:     pingTimeout,
		},
	}}
}

// current is the connection in use, which is replaced when the credentials
// are read again.
type current struct {
	options Options

	mu         sync.Mutex
	connection *connection
}

func (c *current) get() *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connection
}

// renew reads the files again, unless another request has done so since it
// took the connection it was refused on.
func (c *current) renew(refused *connection) (*connection, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connection != refused {
		return c.connection, nil
	}
	a, err := load(c.options)
	if err != nil {
		return nil, err
	}
	refused.transport.CloseIdleConnections()
	c.connection = connect(a)
	return c.connection, nil
}

// pause waits, unless the context ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
