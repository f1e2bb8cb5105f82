package kubetest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Root is the folder of the module.
func Root() (string, error) {
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(module))), nil
}

// Binary returns the path of a program of Kubernetes, which is built now if it
// never was. Progress is told on stderr.
func Binary(program string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	var folder bytes.Buffer
	build := exec.Command(filepath.Join(root, "scripts", "kubernetes-binaries"), program)
	build.Stdout, build.Stderr = &folder, os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("building %s: %w", program, err)
	}
	return filepath.Join(strings.TrimSpace(folder.String()), program), nil
}
