package kubetest

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"calico-cni/test/etcdtest"
)

const (
	startTimeout = 90 * time.Second
	askAgain     = 50 * time.Millisecond

	// AdminToken is of a user who may do everything.
	AdminToken = "admin-token"
)

// Cluster is an API server of the test with its etcd.
type Cluster struct {
	// URL is the address of the server and CAFile the authority that its
	// certificate verifies by.
	URL, CAFile string

	options   Options
	directory string
	port      string
	etcd      *etcdtest.Server
	admin     *Client
	process   *process
}

// process is one run of the server.
type process struct {
	command *exec.Cmd
	output  bytes.Buffer
	exited  chan struct{}
}

// Main runs the tests of a package with one cluster that all of them may use:
// they wipe it, and do not run in parallel. It returns the exit code.
func Main(m *testing.M, use func(*Cluster)) int {
	cluster, err := Launch(Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer cluster.Close()
	use(cluster)
	return m.Run()
}

// start also returns a cluster that has to be stopped if it fails half-way.
func start(options Options) (*Cluster, error) {
	directory, err := os.MkdirTemp("", "kubetest-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the cluster: %w", err)
	}
	c := &Cluster{options: options, directory: directory}
	if err := os.Mkdir(filepath.Join(directory, "etcd"), 0o700); err != nil {
		return c, fmt.Errorf("making a folder for etcd: %w", err)
	}
	if c.etcd, err = etcdtest.Launch(filepath.Join(directory, "etcd")); err != nil {
		return c, err
	}
	if c.port, err = freePort(c.address()); err != nil {
		return c, err
	}
	c.URL = "https://" + net.JoinHostPort(c.address(), c.port)
	c.CAFile = filepath.Join(directory, "pki", "apiserver.crt") // signs itself
	if err := c.prepare(); err != nil {
		return c, err
	}
	if err := c.launch(); err != nil {
		return c, err
	}
	return c, c.ready()
}

// Close ends the cluster and removes its data.
func (c *Cluster) Close() {
	c.kill()
	if c.etcd != nil {
		c.etcd.Stop()
	}
	_ = os.RemoveAll(c.directory) // temporary
}

// prepare writes the keys and the users that the server starts with.
func (c *Cluster) prepare() error {
	pki := filepath.Join(c.directory, "pki")
	if err := os.MkdirAll(pki, 0o700); err != nil {
		return fmt.Errorf("making a folder for keys: %w", err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("making the key of service accounts: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return fmt.Errorf("encoding the key of service accounts: %w", err)
	}
	files := map[string][]byte{
		"sa.key":     pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		"sa.pub":     pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		"tokens.csv": c.options.tokens(),
	}
	for name, body := range files {
		if err := os.WriteFile(filepath.Join(pki, name), body, 0o600); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

func (c *Cluster) arguments() []string {
	pki := filepath.Join(c.directory, "pki")
	return append([]string{
		"--etcd-servers=" + c.etcd.Endpoint,
		"--bind-address=" + c.address(), "--advertise-address=" + c.address(), "--secure-port=" + c.port,
		"--cert-dir=" + pki, "--token-auth-file=" + filepath.Join(pki, "tokens.csv"),
		"--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + filepath.Join(pki, "sa.key"),
		"--service-account-key-file=" + filepath.Join(pki, "sa.pub"),
		"--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none",
		"--allow-privileged=true",
	}, c.options.arguments()...)
}

// launch starts the process from a thread of its own: the kernel kills the
// child when the thread that started it ends, so that no server outlives the
// test binary, however that dies.
func (c *Cluster) launch() error {
	binary, err := Binary("kube-apiserver")
	if err != nil {
		return err
	}
	run := &process{command: exec.Command(binary, c.arguments()...), exited: make(chan struct{})}
	run.command.Stdout, run.command.Stderr = &run.output, &run.output
	run.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer close(run.exited)
		err := run.command.Start()
		started <- err
		if err == nil {
			_ = run.command.Wait() // killed, in the end
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("starting the API server: %w", err)
	}
	c.process = run
	return nil
}

func (c *Cluster) kill() {
	if c.process == nil {
		return
	}
	_ = c.process.command.Process.Kill() // fails if it is gone, which is fine
	<-c.process.exited
}

// ready waits until the server serves and has made its own rules.
func (c *Cluster) ready() error {
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); {
		if client, err := c.login(c.URL, AdminToken); err == nil {
			if client.serves() {
				c.admin = client
				return nil
			}
		}
		select {
		case <-c.process.exited:
			return fmt.Errorf("the API server ended: %s", lastLines(c.process.output.String()))
		case <-time.After(askAgain):
		}
	}
	return fmt.Errorf("the API server does not serve after %v: %s", startTimeout, lastLines(c.process.output.String()))
}

// serves reports whether the server is ready and has made the namespace that
// accounts of the system live in.
func (c *Client) serves() bool {
	body, err := c.Try("GET", "/readyz", nil)
	if err != nil || strings.TrimSpace(string(body)) != "ok" {
		return false
	}
	_, err = c.Try("GET", "/api/v1/namespaces/kube-system", nil)
	return err == nil
}

func lastLines(text string) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// Stop kills the API server, as a crash would. Its data stay.
func (c *Cluster) Stop() { c.kill() }

// Restart starts the API server again and waits until it serves.
func (c *Cluster) Restart(t testing.TB) {
	t.Helper()
	if err := c.launch(); err != nil {
		t.Fatal(err)
	}
	if err := c.ready(); err != nil {
		t.Fatal(err)
	}
}

// The port lies below those that the kernel gives to outgoing connections:
// between being found and being used, one of theirs may be taken.
const (
	firstPort = 10000
	lastPort  = 32000
	portTries = 100
)

func freePort(address string) (string, error) {
	for range portTries {
		port := strconv.Itoa(firstPort + mathrand.IntN(lastPort-firstPort))
		listener, err := net.Listen("tcp", net.JoinHostPort(address, port))
		if err == nil {
			return port, listener.Close()
		}
	}
	return "", fmt.Errorf("found no free port from %d to %d", firstPort, lastPort)
}
