package nodename

import (
	"context"
	"os"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/netconf"
)

// The node agent of a booting node may be about to write the file.
const (
	wait = 5 * time.Second
	poll = 50 * time.Millisecond
)

// Resolve names the node. A file that cannot be read counts as empty: the next
// source is asked.
func Resolve(conf *netconf.Config) (string, error) {
	content, err := os.ReadFile(conf.NodenameFile)
	if err != nil {
		content = nil
	}
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	return conf.NodeName(string(content), host)
}

// Await waits up to 5 s for the node agent's file unless it is optional. An
// address given to a node of a guessed name would be lost to the real one.
func Await(ctx context.Context, conf *netconf.Config) error {
	if conf.NodenameFileOptional {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		_, err := os.Stat(conf.NodenameFile)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return missing(conf, err, "waited 5 s for it; ")
		case <-ticker.C:
		}
	}
}

// Present fails at once where Await would wait.
func Present(conf *netconf.Config) error {
	if conf.NodenameFileOptional {
		return nil
	}
	if _, err := os.Stat(conf.NodenameFile); err != nil {
		return missing(conf, err, "")
	}
	return nil
}

// Certain fails if the name could be a guess: neither the configuration nor
// the file tells it, and the file is not optional. Two nodes may share the
// operating system's host name.
func Certain(conf *netconf.Config) error {
	if conf.NamesNode() {
		return nil
	}
	return Present(conf)
}

func missing(conf *netconf.Config, err error, waited string) error {
	return cnierr.New(cnierr.TryAgainLater,
		"this node's name is not known yet: %w; %scheck that the node agent runs and writes %s, or set nodename_file_optional", err, waited, conf.NodenameFile)
}
