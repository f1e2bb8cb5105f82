package wine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const compiler = "x86_64-w64-mingw32-gcc"

// forwarding are the DLLs that forward to the simulated host.
func forwarding() []string { return []string{"computenetwork", "vmcompute", "iphlpapi"} }

// libraries makes the DLLs, once for all prefixes, and returns their folder.
func libraries(t testing.TB) string {
	t.Helper()
	sources := filepath.Join(root(), "test", "windows", "dll")
	made := filepath.Join(cache(t), "dll-"+digest(t, sources))
	defer lockCache(t)()
	if _, err := os.Stat(made); err == nil {
		return made
	}
	folder, err := os.MkdirTemp(filepath.Dir(made), "half-dll-")
	if err != nil {
		t.Fatal(err)
	}
	compile(t, sources, folder)
	if err := os.Rename(folder, made); err != nil {
		t.Fatal(err)
	}
	return made
}

// digest is that of the files of a folder.
func digest(t testing.TB, folder string) string {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	for _, file := range files {
		body, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(sum, "%s %d\n%s", file.Name(), len(body), body)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

func compile(t testing.TB, sources, folder string) {
	t.Helper()
	for name, with := range map[string][]string{
		"computenetwork":   {"simulator.c", "-lws2_32", "-lole32"},
		"vmcompute":        {"simulator.c", "-lws2_32", "-lole32"},
		"iphlpapi":         {"simulator.c", "-lws2_32"},
		"bcryptprimitives": {"-ladvapi32"},
	} {
		args := append([]string{"-shared", "-O2", "-s", "-Wall", "-Werror", "-Wno-unused-parameter", "-D_WIN32_WINNT=0x0A00",
			"-o", filepath.Join(folder, name+".dll"), name + ".c"}, with...)
		build := exec.CommandContext(t.Context(), compiler, args...)
		build.Dir = sources
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("building %s.dll: %v\n%s", name, err, out)
		}
	}
}
