package plugin

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"calico-cni/pkg/cnierr"
)

// resolveMTU is the configured MTU, else that of the node agent's file, else 0
// for the kernel's default. The file is read in any case: one that cannot be
// understood is a fault of the node.
func (s *serving) resolveMTU() (int, error) {
	content, err := os.ReadFile(s.plugin.MTUFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.Conf.RequireMTUFile:
		return 0, cnierr.New(cnierr.TryAgainLater,
			"%s does not exist and require_mtu_file is set: check that the node agent runs and writes it", s.plugin.MTUFile)
	case errors.Is(err, fs.ErrNotExist):
		return s.Conf.MTU, nil
	case err != nil:
		return 0, cnierr.New(cnierr.InputOutput, "reading the MTU file: %w", err)
	}
	detected, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || detected < 0 {
		return 0, cnierr.New(cnierr.InputOutput, "MTU file %s holds %q, want a decimal number: correct or remove it",
			s.plugin.MTUFile, strings.TrimSpace(string(content)))
	}
	if s.Conf.MTU != 0 {
		return s.Conf.MTU, nil
	}
	return detected, nil
}
