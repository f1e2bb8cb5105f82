package kubernetes

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
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
	// authenticated adds the credentials to what the transport sends.
	authenticated http.RoundTripper
}

// connect prepares a connection; nothing is sent. The transport is not
// rest.TransportFor: that one keeps many connections, whose handshakes cost
// more than they gain, and keeps them for good.
func connect(a access) (*connection, error) {
	connections := 1
	if a.server.Scheme == "http" {
		connections = plainConnections
	}
	proxy := http.ProxyFromEnvironment
	if a.config.Proxy != nil {
		proxy = a.config.Proxy
	}
	transport := &http.Transport{
		Proxy:               proxy,
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
	}
	authenticated, err := rest.HTTPWrappersForConfig(a.config, transport)
	if err != nil {
		return nil, err
	}
	return &connection{access: a, transport: transport, authenticated: authenticated}, nil
}

// open reads the credentials and prepares a connection for them.
func open(o Options) (*connection, error) {
	a, err := load(o)
	if err != nil {
		return nil, err
	}
	return connect(a)
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
	connection, err := open(c.options)
	if err != nil {
		return nil, err
	}
	refused.transport.CloseIdleConnections()
	c.connection = connection
	return connection, nil
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
