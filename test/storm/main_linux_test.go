package storm

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
)

// repository is the root of the module, seen from this package.
const repository = "../.."

// executables says where the plugins and the launcher are, and where the same
// plugins are that each take the other for one of another build.
type executables struct{ plugins, strangers, launch string }

var scratch string

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests wait for processes and the kernel most of their time.
	if err := flag.Set("test.parallel", strconv.Itoa(4*runtime.NumCPU())); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "calico-cni-storm-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}

// build builds on first use. bin/ is left alone if it holds this very source.
var build = sync.OnceValues(func() (executables, error) {
	bin, err := filepath.Abs(filepath.Join(repository, "bin"))
	if err != nil {
		return executables{}, err
	}
	e := executables{plugins: bin, strangers: filepath.Join(scratch, "strangers"), launch: filepath.Join(scratch, "launch")}
	for _, command := range []*exec.Cmd{
		exec.Command(filepath.Join(repository, "scripts/build"), bin),
		exec.Command("go", "build", "-o", e.launch, "../pair/launch"),
	} {
		if out, err := command.CombinedOutput(); err != nil {
			return executables{}, fmt.Errorf("%v: %w\n%s", command.Args, err, out)
		}
	}
	return e, e.estrange()
})

// estrange copies the plugins, with another stamp at the end of one.
func (e executables) estrange() error {
	if err := os.Mkdir(e.strangers, 0o755); err != nil {
		return err
	}
	for name, end := range map[string]string{"calico": "", "calico-ipam": fmt.Sprintf("%64s", "another build")} {
		content, err := os.ReadFile(filepath.Join(e.plugins, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(e.strangers, name), append(content, end...), 0o755); err != nil {
			return err
		}
	}
	return nil
}
