package wine

import (
	"os/exec"
	"path/filepath"
	"testing"
)

const compiler = "x86_64-w64-mingw32-gcc"

// forwarding are the DLLs that forward to the simulated host.
func forwarding() []string { return []string{"computenetwork", "vmcompute", "iphlpapi"} }

// libraries makes the DLLs and returns their folder.
func libraries(t testing.TB) string {
	t.Helper()
	sources, folder := filepath.Join(root(), "test", "windows", "dll"), t.TempDir()
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
	return folder
}
