package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// family is what differs between ICMP of the two families.
type family struct {
	network       string
	request, echo icmp.Type
	protocol      int
}

var (
	four = family{"ip4:icmp", ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply, 1}
	six  = family{"ip6:ipv6-icmp", ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 58}
)

// ping sends one echo request and waits for its answer.
func ping(target string) error {
	address := net.ParseIP(target)
	if address == nil {
		return fmt.Errorf("%q is no address", target)
	}
	f := six
	if address.To4() != nil {
		f = four
	}
	socket, err := icmp.ListenPacket(f.network, "")
	if err != nil {
		return err
	}
	defer socket.Close()
	if err := socket.SetDeadline(time.Now().Add(oneTry)); err != nil {
		return err
	}
	body := &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: 1, Data: []byte(target)}
	request, err := (&icmp.Message{Type: f.request, Body: body}).Marshal(nil)
	if err != nil {
		return err
	}
	if _, err := socket.WriteTo(request, &net.IPAddr{IP: address}); err != nil {
		return err
	}
	return f.await(socket, body)
}

// await reads what arrives until the answer: a raw socket gets everything.
func (f family) await(socket *icmp.PacketConn, want *icmp.Echo) error {
	buffer := make([]byte, 1500)
	for {
		n, _, err := socket.ReadFrom(buffer)
		if err != nil {
			return err
		}
		message, err := icmp.ParseMessage(f.protocol, buffer[:n])
		if err != nil || message.Type != f.echo {
			continue
		}
		if echo, ok := message.Body.(*icmp.Echo); ok && echo.ID == want.ID && bytes.Equal(echo.Data, want.Data) {
			return nil
		}
	}
}
