package installer

import (
	"os"
	"strings"
	"testing"
)

// TestEveryVariableIsDocumented: what is read from the environment is described
// in docs/install.md.
func TestEveryVariableIsDocumented(t *testing.T) {
	t.Parallel()
	body, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]bool{}
	for _, host := range []Host{linuxHost, windowsHost} {
		if _, err := ReadSettings(func(name string) string { read[name] = true; return "" }, host); err != nil {
			t.Fatal(err)
		}
	}
	if len(read) < 35 {
		t.Errorf("only %d variables are read: does this test still see them?", len(read))
	}
	for name := range read {
		if !strings.Contains(string(body), "`"+name+"`") {
			t.Errorf("docs/install.md lacks %s", name)
		}
	}
}
