package ipamplugin

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"calico-cni/pkg/ipam"
)

// checkedPools remembers pools by empty files named <UID>-<blockSize> in a
// directory beside the lock file, which by default does not outlive a boot
// (IPAM contract 5.1). They are best effort: none fails a verb.
type checkedPools struct {
	directory string
	log       *slog.Logger
}

func (s *serving) checkedPools() checkedPools {
	return checkedPools{filepath.Join(filepath.Dir(s.Conf.IPAMLockFile), "checked-pools"), s.Log}
}

func noteName(pool ipam.CheckedPool) string { return pool.UID + "-" + strconv.Itoa(pool.BlockSize) }

// Load implements ipam.CheckedPools. Files that are no notes are passed over.
func (c checkedPools) Load() map[ipam.CheckedPool]bool {
	entries, err := os.ReadDir(c.directory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("the notes on checked pools cannot be read; the next claim of a block lists all blocks", "error", err)
	}
	pools := map[ipam.CheckedPool]bool{}
	for _, entry := range entries {
		at := strings.LastIndexByte(entry.Name(), '-')
		if at <= 0 {
			continue
		}
		size, err := strconv.Atoi(entry.Name()[at+1:])
		if pool := (ipam.CheckedPool{UID: entry.Name()[:at], BlockSize: size}); err == nil && noteName(pool) == entry.Name() {
			pools[pool] = true
		}
	}
	return pools
}

// Replace implements ipam.CheckedPools: notes on pools that are gone go too.
func (c checkedPools) Replace(pools map[ipam.CheckedPool]bool) {
	errs := []error{os.MkdirAll(c.directory, 0o755)}
	for pool := range c.Load() {
		if !pools[pool] {
			errs = append(errs, os.Remove(filepath.Join(c.directory, noteName(pool))))
		}
	}
	for pool := range pools {
		// A UID is whatever the datastore says; it must not lead elsewhere.
		if name := noteName(pool); name == filepath.Base(name) {
			errs = append(errs, os.WriteFile(filepath.Join(c.directory, name), nil, 0o644))
		}
	}
	if err := errors.Join(errs...); err != nil {
		c.log.Warn("the notes on checked pools were not all written; the next claim of a block may list all blocks", "error", err)
	}
}
