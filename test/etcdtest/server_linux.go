package etcdtest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"calico-cni/test/netns"
)

// Options says what kind of server to start.
type Options struct {
	// TLS makes the server speak TLS and demand a client certificate.
	TLS bool
	// Full makes the server refuse writes, as when its disk quota is used up.
	Full bool
}

// Server is an etcd server process of the test.
type Server struct {
	// Endpoint is the URL for clients.
	Endpoint string
	// CAFile, CertFile and KeyFile are what a client of a TLS server needs.
	CAFile, CertFile, KeyFile string

	name       string
	directory  string
	peerURL    string
	metricsURL string
	flags      []string
	cluster    string
	// network is the namespace that the server runs in; nil: the machine's.
	network *netns.Namespace
	// clientURLs are what it listens on for clients.
	clientURLs string
	process    *process
}

// Start runs one server until the test ends.
func Start(t testing.TB, options Options) *Server {
	t.Helper()
	server, err := newServer("single", t.TempDir(), options)
	if err != nil {
		t.Fatal(err)
	}
	server.cluster = server.member()
	t.Cleanup(server.kill)
	server.Restart(t)
	return server
}

// StartCluster runs a cluster of servers until the test ends.
func StartCluster(t testing.TB, members int) []*Server {
	t.Helper()
	servers := make([]*Server, members)
	names := make([]string, members)
	for i := range servers {
		server, err := newServer(fmt.Sprintf("member%d", i), t.TempDir(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.kill)
		servers[i], names[i] = server, server.member()
	}
	startTogether(t, servers, names)
	return servers
}

func startTogether(t testing.TB, servers []*Server, names []string) {
	t.Helper()
	for _, server := range servers {
		server.cluster = strings.Join(names, ",")
		if err := server.launch(); err != nil {
			t.Fatal(err)
		}
	}
	for _, server := range servers {
		if err := server.ready(); err != nil {
			t.Fatal(err)
		}
	}
}

// Site is where a member of a cluster lives: a namespace and its address there.
type Site struct {
	Network *netns.Namespace
	Address string
}

// StartClusterAt runs a cluster whose members live in networks of their own,
// which the test has connected, until the test ends. Clients there find a
// member at port 2379 of its address; Endpoint is a socket in a folder.
func StartClusterAt(t testing.TB, sites []Site) []*Server {
	t.Helper()
	servers := make([]*Server, len(sites))
	names := make([]string, len(sites))
	for i, site := range sites {
		directory := t.TempDir()
		endpoint := "unix://" + filepath.Join(directory, "client")
		servers[i] = &Server{
			Endpoint: endpoint, name: fmt.Sprintf("member%d", i), directory: directory, network: site.Network,
			peerURL: "http://" + site.Address + ":2380", metricsURL: "http://127.0.0.1:2381",
			clientURLs: endpoint + ",http://" + site.Address + ":2379",
		}
		t.Cleanup(servers[i].kill)
		names[i] = servers[i].member()
	}
	startTogether(t, servers, names)
	return servers
}

// Main runs the tests of a package with one server that all of them may use:
// they wipe it, and do not run in parallel. It returns the exit code.
func Main(m *testing.M, use func(*Server)) int {
	directory, err := os.MkdirTemp("", "etcdtest-")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(directory)
	server, err := Launch(directory)
	if err != nil {
		return failed(err)
	}
	defer server.Stop()
	use(server)
	return m.Run()
}

// Launch runs one server with its data in a directory, until Stop: for those
// that have no test to end it.
func Launch(directory string) (*Server, error) {
	server, err := newServer("shared", directory, Options{})
	if err != nil {
		return nil, err
	}
	server.cluster = server.member()
	if err := server.launch(); err != nil {
		return nil, err
	}
	if err := server.ready(); err != nil {
		server.Stop()
		return nil, err
	}
	return server, nil
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func newServer(name, directory string, options Options) (*Server, error) {
	client, err := freeAddress("127.0.0.1")
	if err != nil {
		return nil, err
	}
	peer, err := freeAddress(ownLoopback())
	if err != nil {
		return nil, err
	}
	metrics, err := freeAddress(ownLoopback())
	if err != nil {
		return nil, err
	}
	server := &Server{
		Endpoint:   "http://" + client,
		clientURLs: "http://" + client,
		name:       name,
		directory:  directory,
		peerURL:    "http://" + peer,
		metricsURL: "http://" + metrics,
	}
	if options.Full {
		server.flags = append(server.flags, "--quota-backend-bytes", "1")
	}
	if options.TLS {
		server.Endpoint, server.clientURLs = "https://"+client, "https://"+client
		return server, server.makeCertificates()
	}
	return server, nil
}

func (s *Server) member() string { return s.name + "=" + s.peerURL }

// The ports lie below those that the kernel gives to outgoing connections:
// between being found and being used, a port of theirs may be taken.
const (
	firstPort = 10000
	lastPort  = 32000
)

// ownLoopback is a loopback address that no other test is likely to use,
// whatever the port.
func ownLoopback() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// freeAddress finds a port of a loopback address that nothing listens on.
func freeAddress(host string) (string, error) {
	for range 100 {
		address := fmt.Sprintf("%s:%d", host, firstPort+rand.IntN(lastPort-firstPort))
		listener, err := net.Listen("tcp", address)
		if err == nil {
			return address, listener.Close()
		}
	}
	return "", fmt.Errorf("found no free port of %s from %d to %d", host, firstPort, lastPort)
}

func (s *Server) arguments() []string {
	return append([]string{
		"--name", s.name,
		"--data-dir", filepath.Join(s.directory, "data"),
		"--listen-client-urls", s.clientURLs,
		"--advertise-client-urls", s.clientURLs,
		"--listen-peer-urls", s.peerURL,
		"--initial-advertise-peer-urls", s.peerURL,
		"--initial-cluster", s.cluster,
		"--listen-metrics-urls", s.metricsURL,
		"--heartbeat-interval", "20",
		"--election-timeout", "200",
		"--unsafe-no-fsync",
		"--log-level", "error",
	}, s.flags...)
}
