package installer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Suffixes of files on their way: one that is being written, and on Windows
// one that still runs and had to make room.
const (
	unfinished = ".tmp"
	replaced   = ".old"
)

// replaceFile makes a file hold what write writes, with exactly this mode. At
// any moment, also after a power failure, path is the file that was there or
// the new one.
func replaceFile(path string, mode fs.FileMode, write func(io.Writer) error) (err error) {
	temporary := path + unfinished
	if err := removeLeftovers(path); err != nil {
		return err
	}
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("beginning the new %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing %s: %w", temporary, err)
			_ = file.Close()
			_ = os.Remove(temporary) // else the next run does
		}
	}()
	if err := write(file); err != nil {
		return err
	}
	if setsMode {
		if err := file.Chmod(mode); err != nil {
			return err
		}
	}
	if err := file.Sync(); err != nil {
		return err
	}
	mine, err := file.Stat()
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if now, err := os.Stat(temporary); err != nil || !os.SameFile(mine, now) {
		return errors.New("another installer is writing it at the same time: let only one of them run")
	}
	if err := rename(temporary, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func rename(from, to string) error {
	if runtime.GOOS != "windows" {
		return os.Rename(from, to)
	}
	return renameOverRunning(from, to, os.Rename)
}

// renameOverRunning is for Windows, where an executable that runs cannot be
// replaced, but renamed.
func renameOverRunning(from, to string, rename func(from, to string) error) error {
	err := rename(from, to)
	if err == nil {
		return nil
	}
	if aside := rename(to, to+replaced); aside != nil {
		return err
	}
	if err := rename(from, to); err != nil {
		return errors.Join(err, rename(to+replaced, to))
	}
	return nil
}

// removeLeftovers removes what an installer that was killed has left of files,
// and what an earlier one had to leave because it was running.
func removeLeftovers(paths ...string) error {
	for _, path := range paths {
		if err := os.Remove(path + unfinished); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing what an earlier run has left: %w", err)
		}
		_ = os.Remove(path + replaced) // it may still run: then a later run does
	}
	return nil
}

// writeFile is replaceFile for a short text, which is not written if it is
// there already: a runtime would read it again.
func writeFile(path string, mode fs.FileMode, content []byte) error {
	found, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(found, content) {
		return replaceFile(path, mode, func(w io.Writer) error {
			_, err := w.Write(content)
			return err
		})
	}
	if err := removeLeftovers(path); err != nil {
		return err
	}
	return setMode(path, mode)
}

// setsMode is false on Windows, whose files have no mode.
const setsMode = runtime.GOOS != "windows"

func setMode(path string, mode fs.FileMode) error {
	if !setsMode {
		return nil
	}
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm() != mode {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		return fmt.Errorf("setting the mode of %s: %w", path, err)
	}
	return nil
}

// sameContent reports whether two files hold the same; one that is missing
// holds nothing that is the same.
func sameContent(a, b string) (bool, error) {
	first, err := os.Open(a)
	if err != nil {
		return false, absent(err)
	}
	defer first.Close()
	second, err := os.Open(b)
	if err != nil {
		return false, absent(err)
	}
	defer second.Close()
	one, err := first.Stat()
	if err != nil {
		return false, err
	}
	other, err := second.Stat()
	if err != nil || one.Size() != other.Size() {
		return false, err
	}
	return sameBytes(first, second)
}

func sameBytes(a, b io.Reader) (bool, error) {
	const chunk = 64 * 1024
	left, right := make([]byte, chunk), make([]byte, chunk)
	for {
		n, err := io.ReadFull(a, left)
		m, other := io.ReadFull(b, right)
		if n != m || !bytes.Equal(left[:n], right[:m]) {
			return false, nil
		}
		for _, err := range []error{err, other} {
			if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
				return false, err
			}
		}
		if n < chunk {
			return true, nil
		}
	}
}

func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
