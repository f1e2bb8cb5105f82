package pair

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// proxy carries connections from a host's loopback to a server on the
// machine's.
type proxy struct {
	listener net.Listener
	target   string
	// delay is how long an answer is kept back.
	delay time.Duration

	mutex sync.Mutex
	open  []net.Conn
}

// newProxy listens on the host. Without a target it accepts and never answers.
func (h *host) newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	return h.newSlowProxy(t, target, 0)
}

// newSlowProxy keeps every answer back for a while.
func (h *host) newSlowProxy(t *testing.T, target string, delay time.Duration) *proxy {
	t.Helper()
	p := &proxy{target: target, delay: delay}
	h.network.Do(t, func() {
		var err error
		if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatalf("listening on the host: %v", err)
		}
	})
	go p.serve()
	t.Cleanup(p.close)
	return p
}

// proxied is a URL whose connections the proxy carries to that URL's server.
func (h *host) proxied(t *testing.T, url string) string {
	t.Helper()
	scheme, target, _ := strings.Cut(url, "://")
	return scheme + "://" + h.newProxy(t, target).address()
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.keep(client)
		if p.target != "" {
			go p.carry(client)
		}
	}
}

func (p *proxy) keep(connection net.Conn) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.open = append(p.open, connection)
}

func (p *proxy) carry(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	p.keep(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, client)
		server.Close()
	}()
	_, _ = io.Copy(slow{client, p.delay}, server)
	client.Close()
	<-done
}

// slow is a connection on which every write takes a while.
type slow struct {
	io.Writer
	delay time.Duration
}

func (s slow) Write(data []byte) (int, error) {
	time.Sleep(s.delay)
	return s.Writer.Write(data)
}

func (p *proxy) close() {
	p.listener.Close()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, connection := range p.open {
		connection.Close()
	}
}
