package etcd

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

// alertPatience is how long a dead connection is read for the reason.
const alertPatience = 100 * time.Millisecond

// alertCredentials makes connections that tell why a server closed them. In
// TLS 1.3 a server looks at the client's certificate after the client has
// finished its handshake, so the rejection is met by a write: that fails with
// a broken pipe, and the reason waits to be read.
type alertCredentials struct {
	credentials.TransportCredentials
}

// ClientHandshake implements credentials.TransportCredentials.
func (c alertCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return alertConn{conn}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c alertCredentials) Clone() credentials.TransportCredentials {
	return alertCredentials{c.TransportCredentials.Clone()}
}

type alertConn struct{ net.Conn }

// Write returns the server's alert, if there is one, as its error. A reader
// that waits at the same time gets it too: it is kept by the connection.
func (c alertConn) Write(data []byte) (int, error) {
	n, err := c.Conn.Write(data)
	if err == nil || c.SetReadDeadline(time.Now().Add(alertPatience)) != nil {
		return n, err
	}
	var alert *net.OpError
	if _, readErr := c.Read(make([]byte, 1)); errors.As(readErr, &alert) && alert.Op == "remote error" {
		return n, alert
	}
	return n, err
}
