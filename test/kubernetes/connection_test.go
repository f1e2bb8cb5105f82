//go:build kubernetes && linux

package kubernetes

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
	"calico-cni/test/kubetest"
)

// relay passes bytes on to the server until they are to vanish.
type relay struct {
	listener net.Listener

	mu     sync.Mutex
	frozen map[net.Conn]bool
	open   []net.Conn
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return relayFrom(t, listener)
}

func relayFrom(t *testing.T, listener net.Listener) *relay {
	t.Helper()
	r := &relay{listener: listener, frozen: map[net.Conn]bool{}}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r.connect(conn)
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		accepting.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, conn := range r.open {
			_ = conn.Close()
		}
	})
	return r
}

func (r *relay) connect(client net.Conn) {
	server, err := net.Dial("tcp", strings.TrimPrefix(cluster.URL, "https://"))
	if err != nil {
		_ = client.Close()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = append(r.open, client, server)
	go r.pass(client, client, server)
	go r.pass(client, server, client)
}

// pass ends when the test closes the connections.
func (r *relay) pass(client, from, to net.Conn) {
	buffer := make([]byte, 32*1024)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		r.mu.Lock()
		frozen := r.frozen[client]
		r.mu.Unlock()
		if frozen {
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// freeze lets what is sent on today's connections vanish, both ways.
func (r *relay) freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.open {
		r.frozen[conn] = true
	}
}

// TestDeadConnection: the server was moved, and nobody told the connection. A
// read finds the way by itself.
func TestDeadConnection(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	r := newRelay(t)
	path := kubetest.Kubeconfig(t, "https://"+r.listener.Addr().String(), cluster.CAFile, e.token)
	store := e.openAt(path)
	e.get(store, model.IPAMConfigKey{})
	r.freeze()
	began := time.Now()
	if _, err := store.Read(e.within(time.Minute), datastore.Get{Key: model.IPAMConfigKey{}}); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < time.Second || took > 14*time.Second {
		t.Errorf("it took %v", took)
	}
}
