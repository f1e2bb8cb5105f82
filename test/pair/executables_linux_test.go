package pair

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

// tools are the executables that tests need beside the pair: the launcher, a
// stand-in for other plugins, and what upstream ships.
var tools = []string{
	"./launch",
	"./standin",
	"github.com/containernetworking/cni/cnitool",
	"github.com/containernetworking/plugins/plugins/ipam/host-local",
	"github.com/containernetworking/plugins/plugins/ipam/static",
	"github.com/containernetworking/plugins/plugins/main/loopback",
	"github.com/containernetworking/plugins/plugins/meta/portmap",
	"github.com/containernetworking/plugins/plugins/meta/tuning",
}

// folders says where the executables are.
type folders struct{ pair, tools string }

var scratch string

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests wait for processes and clocks most of their time.
	if err := flag.Set("test.parallel", strconv.Itoa(4*runtime.NumCPU())); err != nil {
		panic(err)
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	var err error
	scratch, err = os.MkdirTemp("", "calico-cni-pair-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}

// built builds the executables on first use. bin/ is left alone if it holds
// this very source already.
var built = sync.OnceValues(func() (folders, error) {
	bin, err := filepath.Abs(filepath.Join(repository, "bin"))
	if err != nil {
		return folders{}, err
	}
	f := folders{pair: bin, tools: scratch}
	// A module of its own, on purpose of another version of the protocol's library.
	older := exec.Command("go", "build", "-o", scratch+"/", ".")
	older.Dir = filepath.Join(repository, "test/tools/gocni")
	for _, command := range []*exec.Cmd{
		older,
		exec.Command(filepath.Join(repository, "scripts/build"), bin),
		exec.Command("go", append([]string{"build", "-o", scratch + "/"}, tools...)...),
	} {
		if out, err := command.CombinedOutput(); err != nil {
			return folders{}, fmt.Errorf("%v: %w\n%s", command.Args, err, out)
		}
	}
	return f, nil
})

func executables(t testing.TB) folders {
	t.Helper()
	f, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// cniPath is a CNI_PATH with the pair and upstream's plugins.
func (f folders) cniPath() string { return f.pair + ":" + f.tools }
