package nodename

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/netconf"
)

// configured is a configuration whose nodename file does not exist yet.
func configured(t *testing.T) *netconf.Config {
	t.Helper()
	return &netconf.Config{NodeConfig: netconf.NodeConfig{NodenameFile: filepath.Join(t.TempDir(), "nodename")}}
}

func write(t *testing.T, conf *netconf.Config) {
	t.Helper()
	if err := os.WriteFile(conf.NodenameFile, []byte("worker-b\n"), 0o600); err != nil {
		t.Error(err)
	}
}

func wantMissing(t *testing.T, err error, conf *netconf.Config) {
	t.Helper()
	if cnierr.CodeOf(err) != cnierr.TryAgainLater || !strings.Contains(err.Error(), conf.NodenameFile) {
		t.Errorf("error %v, want code 11 and the name of the file", err)
	}
}

func TestAwait(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		appears time.Duration
		waits   time.Duration
		fails   bool
	}{
		"Network/6 never":     {time.Hour, 5 * time.Second, true},
		"Network/6 after 3 s": {3 * time.Second, 3 * time.Second, false},
		"there already":       {0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				conf := configured(t)
				if test.appears == 0 {
					write(t, conf)
				} else {
					agent := time.AfterFunc(test.appears, func() { write(t, conf) })
					defer agent.Stop()
				}
				start := time.Now()
				err := Await(context.Background(), conf)
				if waited := time.Since(start); waited < test.waits || waited > test.waits+poll {
					t.Errorf("waited %v, want %v", waited, test.waits)
				}
				if test.fails {
					wantMissing(t, err, conf)
				} else if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestMissingFile(t *testing.T) {
	t.Parallel()
	conf := configured(t)
	wantMissing(t, Present(conf), conf)
	wantMissing(t, Certain(conf), conf)
	named := *conf
	named.Nodename = "worker-b"
	wantMissing(t, Present(&named), &named)
	if err := Certain(&named); err != nil {
		t.Errorf("Network/6 the configuration names the node: %v", err)
	}
	optional := *conf
	optional.NodenameFileOptional = true
	for _, err := range []error{Present(&optional), Certain(&optional), Await(context.Background(), &optional)} {
		if err != nil {
			t.Errorf("Network/6 the file is optional: %v", err)
		}
	}
	write(t, conf)
	if name, err := Resolve(conf); err != nil || name != "worker-b" {
		t.Errorf("Network/8 name %q, %v", name, err)
	}
}
