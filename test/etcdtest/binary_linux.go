package etcdtest

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
)

// serverPackage is a tool of go.mod: the go command builds it once and keeps
// the executable in its cache.
const serverPackage = "go.etcd.io/etcd/server/v3"

var serverBinary = sync.OnceValues(func() (string, error) {
	path, err := exec.Command("go", "tool", "-n", serverPackage).Output()
	if err != nil {
		if exit, ok := err.(*exec.ExitError); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("building the etcd server: %w", err)
	}
	return strings.TrimSpace(string(path)), nil
})
