package installer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The names that our executable is installed under.
const (
	networkPlugin = "calico"
	ipamPlugin    = "calico-ipam"
	// ownName is the installer's in an image.
	ownName = "install"
)

// copying is one file to install.
type copying struct{ from, to string }

// planCopies decides which of the files in the folder of plugins are installed
// under which names. The executable of the network plugin is installed under
// both of our names unless the other has a file of its own: it serves both.
func planCopies(names, skip []string, goos string) ([]copying, error) {
	suffix := ""
	if goos == "windows" {
		suffix = ".exe"
	}
	network, ipam := networkPlugin+suffix, ipamPlugin+suffix
	if !slices.Contains(names, network) {
		return nil, fmt.Errorf("there is no %s: run the installer of an image, or name the folder of the plugins with -from", network)
	}
	// The IPAM plugin goes first: an older network plugin executes it.
	plan := []copying{{ipam, ipam}, {network, network}}
	if !slices.Contains(names, ipam) {
		plan[0].from = network
	}
	for _, name := range names {
		plain := strings.TrimSuffix(name, suffix)
		switch {
		case name == network, name == ipam, plain == ownName, slices.Contains(skip, name), slices.Contains(skip, plain):
		case strings.HasSuffix(name, unfinished), strings.HasSuffix(name, replaced):
		default:
			plan = append(plan, copying{name, name})
		}
	}
	return plan, nil
}

// binDir is a folder that plugins may go into.
type binDir struct {
	path string
	// refusal says why nothing can be written there.
	refusal error
	// complete: it has both of our names.
	complete bool
}

// chooseDirs returns the folders to write to. To have none is an error, unless
// nothing is to be updated and the plugins are there.
func chooseDirs(dirs []binDir, update bool) ([]string, error) {
	var chosen []string
	var refusals []error
	preinstalled := false
	for _, dir := range dirs {
		if dir.refusal == nil {
			chosen = append(chosen, dir.path)
			continue
		}
		refusals = append(refusals, dir.refusal)
		preinstalled = preinstalled || dir.complete
	}
	if len(chosen) == 0 && (update || !preinstalled) {
		return nil, fmt.Errorf("no folder for plugins can be written to: %w; mount the host's folder of CNI plugins writable, "+
			"or put %s and %s there and set UPDATE_CNI_BINARIES=false", errors.Join(refusals...), networkPlugin, ipamPlugin)
	}
	return chosen, nil
}

func look(path, goos string) binDir {
	suffix := ""
	if goos == "windows" {
		suffix = ".exe"
	}
	return binDir{
		path: path, refusal: writable(path),
		complete: exists(filepath.Join(path, networkPlugin+suffix)) && exists(filepath.Join(path, ipamPlugin+suffix)),
	}
}

// pluginFiles lists the files of a folder. Links count as what they lead to.
func pluginFiles(directory string) ([]string, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, fmt.Errorf("looking for the plugins to install: %w", err)
	}
	var names []string
	for _, entry := range entries {
		info, err := os.Stat(filepath.Join(directory, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("looking for the plugins to install: %w", err)
		}
		if info.Mode().IsRegular() {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// installFile copies an executable unless it is there. It may replace one that
// runs. changed tells whether it did.
func installFile(from, to string, update bool) (changed bool, err error) {
	if err := removeLeftovers(to); err != nil {
		return false, err
	}
	if !update && exists(to) {
		return false, nil
	}
	info, err := os.Stat(from)
	if err != nil {
		return false, fmt.Errorf("looking at a plugin to install: %w", err)
	}
	same, err := sameContent(from, to)
	if err != nil {
		return false, fmt.Errorf("comparing %s with %s: %w", to, from, err)
	}
	if same {
		return false, setMode(to, info.Mode().Perm())
	}
	err = replaceFile(to, info.Mode().Perm(), func(w io.Writer) error {
		source, err := os.Open(from)
		if err != nil {
			return err
		}
		defer source.Close()
		_, err = io.Copy(w, source)
		return err
	})
	if err != nil {
		return false, err
	}
	return true, verify(from, to, info)
}

// verify finds what storage that lies has made of a copy.
func verify(from, to string, want os.FileInfo) error {
	same, err := sameContent(from, to)
	if err != nil {
		return fmt.Errorf("verifying %s: %w", to, err)
	}
	got, err := os.Stat(to)
	if err != nil {
		return fmt.Errorf("verifying %s: %w", to, err)
	}
	if !same {
		return fmt.Errorf("%s does not hold what was copied from %s: check the disk, and that nothing else installs there", to, from)
	}
	if setsMode && got.Mode().Perm() != want.Mode().Perm() {
		return fmt.Errorf("%s has mode %v and not %v: does its file system have modes?", to, got.Mode().Perm(), want.Mode().Perm())
	}
	return nil
}
