package etcdtest_test

import (
	"bufio"
	"maps"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"calico-cni/test/etcdtest"
)

// deserter is set in a process of the test binary that starts a server and
// waits to be killed.
const deserter = "ETCDTEST_DESERTER"

func TestServer(t *testing.T) {
	if os.Getenv(deserter) != "" {
		server := etcdtest.Start(t, etcdtest.Options{})
		os.Stdout.WriteString("endpoint " + server.Endpoint + "\n")
		select {}
	}
	server := etcdtest.Start(t, etcdtest.Options{})
	calls := server.CallsDuring(t, func() {
		server.Put(t, "/a/1", "one")
		server.Put(t, "/b", "two")
	})
	if want := map[string]int{"Put": 2}; !maps.Equal(calls, want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
	server.Stop()
	server.Restart(t)
	if found, want := server.Get(t, "/a/"), map[string]string{"/a/1": "one"}; !maps.Equal(found, want) {
		t.Errorf("after a restart: %v, want %v", found, want)
	}
	server.Pause(t)
	server.Resume(t)
	server.Wipe(t)
	if found := server.Get(t, "/"); len(found) != 0 {
		t.Errorf("after wiping: %v", found)
	}
}

// TestNoServerOutlivesTheTestBinary kills a test binary that runs a server.
func TestNoServerOutlivesTheTestBinary(t *testing.T) {
	binary := exec.Command(os.Args[0], "-test.run=^TestServer$")
	binary.Env = append(os.Environ(), deserter+"=1")
	output, err := binary.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := binary.Start(); err != nil {
		t.Fatal(err)
	}
	address := ""
	for lines := bufio.NewScanner(output); address == "" && lines.Scan(); {
		_, address, _ = strings.Cut(lines.Text(), "endpoint http://")
	}
	if err := binary.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = binary.Wait() // killed
	if address == "" {
		t.Fatal("the test binary started no server")
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		connection.Close()
		if time.Now().After(deadline) {
			t.Fatal("the server still runs")
		}
	}
}
