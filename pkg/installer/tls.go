package installer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// assetNames are the files for etcd, and the placeholder of each one's path.
var assetNames = [...]struct{ file, placeholder string }{
	{"etcd-ca", "ETCD_CA_CERT_FILE"},
	{"etcd-cert", "ETCD_CERT_FILE"},
	{"etcd-key", "ETCD_KEY_FILE"},
}

// assets are files for etcd, by name.
type assets map[string][]byte

// readAssets reads those that are there.
func readAssets(directory string) (assets, error) {
	found := assets{}
	for _, asset := range assetNames {
		content, err := os.ReadFile(filepath.Join(directory, asset.file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the TLS files for etcd: %w", err)
		}
		found[asset.file] = content
	}
	return found, nil
}

// write makes a directory hold exactly these files. Each one is replaced as a
// whole: a plugin that runs meanwhile never finds half of one or none.
func (a assets) write(directory string) error {
	if len(a) == 0 {
		if err := os.RemoveAll(directory); err != nil {
			return fmt.Errorf("removing old TLS files: %w", err)
		}
		return nil
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return fmt.Errorf("making the folder of TLS files: %w", err)
	}
	if err := setMode(directory, 0o700); err != nil {
		return err
	}
	for name, content := range a {
		if err := writeFile(filepath.Join(directory, name), 0o600, content); err != nil {
			return fmt.Errorf("installing the TLS files for etcd: %w", err)
		}
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		return fmt.Errorf("looking for old TLS files: %w", err)
	}
	for _, entry := range entries {
		if _, current := a[entry.Name()]; current {
			continue
		}
		if err := os.RemoveAll(filepath.Join(directory, entry.Name())); err != nil {
			return fmt.Errorf("removing old TLS files: %w", err)
		}
	}
	return nil
}
