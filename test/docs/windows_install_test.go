package docs

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestWindowsInstallScript looks at deploy/windows/install.ps1, which no test
// can run: it is short, and knows only variables, flags and folders that are
// documented.
func TestWindowsInstallScript(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		text, err := os.ReadFile("../../" + path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	script, document, command := read("deploy/windows/install.ps1"), read("docs/install.md"), read("pkg/installer/command.go")
	if lines := strings.Count(script, "\n"); lines > 60 {
		t.Errorf("the script has %d lines", lines)
	}
	for _, set := range all(script, `(?m)^\s*(?:if .*\{ )?\$env:([A-Za-z_]+) =`) {
		if !strings.Contains(document, "`"+set+"`") {
			t.Errorf("variable %s is not documented", set)
		}
	}
	calls := all(script, `(?m)^\s*& (.*)$`)
	if len(calls) != 1 || !strings.HasPrefix(calls[0], `"$From\calico.exe" install `) {
		t.Fatalf("the script calls %q", calls)
	}
	for _, flag := range all(calls[0], ` (-[a-z-]+)`) {
		if !strings.Contains(command, "\n  "+flag+" DIR") {
			t.Errorf("flag %s is none of calico install", flag)
		}
	}
	var set struct {
		Spec struct {
			Template struct {
				Spec struct{ Containers []struct{ Command []string } }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read("deploy/windows/daemonset.yaml")), &set); err != nil {
		t.Fatal(err)
	}
	folders := all(script, `\$(?:bin|conf) = ['"](.*)['"]`)
	for i, folder := range folders {
		folders[i] = strings.Replace(folder, "$env:ProgramFiles", `C:\Program Files`, 1)
	}
	of := set.Spec.Template.Spec.Containers[0].Command
	if len(folders) != 4 || !slices.Contains(of, folders[0]) || !slices.Contains(of, folders[1]) ||
		!strings.Contains(document, "`"+folders[2]+"`") || !strings.Contains(document, "`"+folders[3]+"`") {
		t.Errorf("the script installs into %q, the DaemonSet by %q", folders, of)
	}
	parameters := all(script, `(?m)\] \$([A-Za-z]+)`)
	for _, given := range all(document, `install\.ps1 (-.*)`) {
		for _, parameter := range all(given, `-([A-Za-z]+) `) {
			if !slices.Contains(parameters, parameter) {
				t.Errorf("the script has no parameter %s", parameter)
			}
		}
	}
}

// all are the matches of a pattern's group.
func all(text, pattern string) []string {
	var found []string
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}
