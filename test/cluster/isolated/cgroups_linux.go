package isolated

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// prefix begins the names of all runs' control groups.
	prefix = "calico-cni-test-"
	// A control group is busy until the kernel has buried its processes.
	removeTimeout = 30 * time.Second
	tryAgain      = 20 * time.Millisecond
)

// hierarchies are the folders where control groups are mounted: one in version
// 2, one per controller in version 1.
func hierarchies() ([]string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("looking for the control groups: %w", err)
	}
	var found []string
	for line := range strings.Lines(string(mounts)) {
		mount, device, ok := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if !ok || len(fields) < 5 || !strings.HasPrefix(device, "cgroup") || fields[3] != "/" {
			continue
		}
		if !slices.Contains(found, fields[4]) {
			found = append(found, fields[4])
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no control groups are mounted here")
	}
	return found, nil
}

// MakeCgroup makes a control group in every hierarchy, where processes can be
// put into at once.
func MakeCgroup(name string) error {
	mounts, err := hierarchies()
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		group := filepath.Join(mount, name)
		if err := os.MkdirAll(group, 0o755); err != nil {
			return fmt.Errorf("making a control group: %w", err)
		}
		// Version 1 takes no process into a group without processors.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := inherit(group, file); err != nil {
				return fmt.Errorf("making a control group: %w", err)
			}
		}
	}
	return nil
}

// inherit copies a setting that is empty in a new group from its parent.
func inherit(group, file string) error {
	own, err := os.ReadFile(filepath.Join(group, file))
	if errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(own)) != "" {
		return nil
	}
	if err != nil {
		return err
	}
	parent, err := os.ReadFile(filepath.Join(filepath.Dir(group), file))
	if err != nil || strings.TrimSpace(string(parent)) == "" {
		return err // empty in all of version 2
	}
	return os.WriteFile(filepath.Join(group, file), parent, 0o644)
}

// RemoveCgroup removes a control group and those below it from every
// hierarchy. Their processes must have been killed.
func RemoveCgroup(name string) error {
	mounts, err := hierarchies()
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		if err := removeTree(filepath.Join(mount, name)); err != nil {
			return fmt.Errorf("removing a control group: %w", err)
		}
	}
	return nil
}

func removeTree(group string) error {
	for deadline := time.Now().Add(removeTimeout); ; time.Sleep(tryAgain) {
		err := removeOnce(group)
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			return err
		}
	}
}

func removeOnce(group string) error {
	var folders []string
	err := filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, folder := range slices.Backward(folders) {
		if err := syscall.Rmdir(folder); err != nil && !errors.Is(err, syscall.ENOENT) {
			return &fs.PathError{Op: "rmdir", Path: folder, Err: err}
		}
	}
	return nil
}

// ownName names the groups of this process: its number and the time it began
// tell it from any that gets the number later.
func ownName() (string, error) {
	began, err := startOf(os.Getpid())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s%d-%s", prefix, os.Getpid(), began), nil
}

// startOf returns when a process began, in the kernel's ticks.
func startOf(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", fmt.Errorf("looking up process %d: %w", pid, err)
	}
	// The second field is a name in brackets, with whatever in it.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const startTime = 22 - 3 // proc(5), counted from the third field
	if len(fields) <= startTime {
		return "", fmt.Errorf("looking up process %d: unexpected %q", pid, stat)
	}
	return fields[startTime], nil
}

// removeAbandoned removes what killed runs left.
func removeAbandoned() error {
	mounts, err := hierarchies()
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		groups, err := filepath.Glob(filepath.Join(mount, prefix+"*"))
		if err != nil {
			return err
		}
		for _, group := range groups {
			if owned(filepath.Base(group)) {
				continue
			}
			if err := removeTree(group); err != nil {
				return fmt.Errorf("removing a control group that a killed run left: %w", err)
			}
		}
	}
	return nil
}

// owned reports whether the run that a control group is of still runs.
func owned(group string) bool {
	number, began, _ := strings.Cut(strings.TrimPrefix(group, prefix), "-")
	pid, err := strconv.Atoi(number)
	if err != nil {
		return true // not named by us
	}
	now, err := startOf(pid)
	return err == nil && now == began
}
