package ipamplugin

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
	"calico-cni/pkg/session"
)

// claimMemory is longer than anybody waits for the IPAM lock.
const claimMemory = 10 * time.Minute

// claimedBlocks notes blocks by empty files, which have the names that
// Kubernetes has for them, in a directory beside the lock file. They are best
// effort: none fails a verb.
type claimedBlocks struct {
	directory string
	now       func() time.Time
	log       *slog.Logger
}

func claimedBlocksOf(s *session.Session) claimedBlocks {
	return claimedBlocks{filepath.Join(filepath.Dir(s.Conf.IPAMLockFile), "claimed-blocks"), s.Now, s.Log}
}

// RecentClaims is what this host has claimed lately, for Shared.Before.
func RecentClaims(s *session.Session) ipam.Claims { return claimedBlocksOf(s).Recent() }

// Recent implements ipam.ClaimedBlocks. Files that are no notes are passed over.
func (c claimedBlocks) Recent() ipam.Claims {
	entries, err := os.ReadDir(c.directory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("the notes on claimed blocks cannot be read; pods that start at the same time may get blocks of their own", "error", err)
	}
	claims := ipam.Claims{}
	for _, entry := range entries {
		cidr, ok := model.ParseCIDRName(entry.Name())
		info, err := entry.Info()
		if ok && err == nil {
			claims[cidr] = info.ModTime()
		}
	}
	return claims
}

// Note implements ipam.ClaimedBlocks. Old notes go.
func (c claimedBlocks) Note(cidr netip.Prefix) {
	path := filepath.Join(c.directory, model.CIDRName(cidr))
	err := errors.Join(os.MkdirAll(c.directory, 0o755), os.WriteFile(path, nil, 0o644), os.Chtimes(path, c.now(), c.now()))
	entries, readErr := os.ReadDir(c.directory)
	for _, entry := range entries {
		info, infoErr := entry.Info()
		if infoErr == nil && c.now().Sub(info.ModTime()) > claimMemory {
			err = errors.Join(err, os.Remove(filepath.Join(c.directory, entry.Name())))
		}
	}
	if err = errors.Join(err, readErr); err != nil {
		c.log.Warn("the claim of a block was not noted; pods that start at the same time may get blocks of their own", "error", err)
	}
}
