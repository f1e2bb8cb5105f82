package storm

import (
	"io"
	"net"
	"testing"
)

// proxy carries connections from the host's loopback to a server on the
// machine's. It returns the address on the host.
func (h *host) proxy(t *testing.T, target string) string {
	t.Helper()
	var listener net.Listener
	h.network.Do(t, func() {
		var err error
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatalf("listening on the host: %v", err)
		}
	})
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go carry(client, target)
		}
	}()
	return listener.Addr().String()
}

// carry ends when either side ends, as a killed plugin does.
func carry(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	done := make(chan struct{}, 2)
	pass := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from) // an error is an end
		done <- struct{}{}
	}
	go pass(server, client)
	go pass(client, server)
	<-done
}
