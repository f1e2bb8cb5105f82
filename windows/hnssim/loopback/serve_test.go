package loopback

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"calico-cni/windows/hnssim"
)

// connection is what a DLL has.
type connection struct {
	*testing.T
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, engine *hnssim.Engine) *connection {
	t.Helper()
	server, err := Serve(t.Context(), engine)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	conn, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", server.Port()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &connection{t, conn, bufio.NewReader(conn)}
}

func (c *connection) call(function, id, payload string) (code uint32, answer string) {
	c.Helper()
	if _, err := fmt.Fprintf(c, "%s %s true %d\n%s", function, id, len(payload), payload); err != nil {
		c.Fatal(err)
	}
	var length int
	line, err := c.in.ReadString('\n')
	if err != nil {
		c.Fatal(err)
	}
	if _, err := fmt.Sscanf(line, "%d %d\n", &code, &length); err != nil {
		c.Fatalf("%q: %v", line, err)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(c.in, body); err != nil {
		c.Fatal(err)
	}
	return code, string(body)
}

func TestCalls(t *testing.T) {
	t.Parallel()
	engine := hnssim.New()
	c := dial(t, engine)
	const network = `{"Name":"n","Type":"L2Bridge","Ipams":[{"Subnets":[{"IpAddressPrefix":"10.1.0.0/24",
		"Routes":[{"NextHop":"10.1.0.1","DestinationPrefix":"0.0.0.0/0"}]}]}],"SchemaVersion":{"Major":2}}`
	code, id := c.call("CreateNetwork", "-", network)
	if code != 0 {
		t.Fatalf("code 0x%X: %s", code, id)
	}
	for _, want := range []struct {
		function, id, payload string
		code                  uint32
		answer                string
	}{
		{"HNSCall", "-", "", 0, `{"Success":true,"Output":{"Major":13,"Minor":2}}`},
		{"OpenNetwork", id, "", 0, ""},
		{"QueryNetworkProperties", id, "", 0, `"Name":"n"`},
		{"EnumerateEndpoints", "-", "", 0, "[]"},
		{"DeleteEndpoint", "x", "", 0x803B0002, `"ErrorCode":2151350274`},
		{"OpenNamespace", "x", "", 0x80070490, `"Success":false`},
		{"CreateNetwork", "-", network, 0x803B0010, "name n"},
		{"Forwarding", "10", "", 0, "false"},
		{"EnableForwarding", "10", "", 0, ""},
		{"Forwarding", "10", "", 0, "true"},
		{"Interfaces", "-", "", 0, "10 00155d102030 172.20.41.103/19 vEthernet (Ethernet)"},
		{"AddRoute", "-", "169.254.169.254 32 172.20.32.1 10 5", 0, ""},
		{"AddRoute", "-", "nonsense", 0x80004005, "nonsense"},
		{"Routes", "-", "", 0, "169.254.169.254 32 172.20.32.1 10 5"},
		{"Nonsense", "-", "", 0x80004005, "not simulated"},
		{"DeleteNetwork", id, "", 0, ""},
	} {
		code, answer := c.call(want.function, want.id, want.payload)
		if code != want.code || !strings.Contains(answer, want.answer) {
			t.Errorf("%s: code 0x%X, %q", want.function, code, answer)
		}
	}
	if found := engine.Findings(); len(found) > 0 {
		t.Errorf("findings %v", found)
	}
}

func TestNonsenseEndsTheConnection(t *testing.T) {
	t.Parallel()
	c := dial(t, hnssim.New())
	if _, err := fmt.Fprint(c, "nonsense\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.in.ReadByte(); err == nil {
		t.Error("it was answered")
	}
}
