package build

import (
	"fmt"
	"io"
	"os"
)

// Set by the linker: -X calico-cni/pkg/build.version=... and .id=...
var (
	version = "development"
	id      = ""
)

// stampSize is the length of what the build appends to both executables:
// "calico-cni:" and the build's id, padded with blanks.
const stampSize = 64

// Version is the text that -v prints.
func Version() string { return version }

// Same reports whether the executable at path is of this very build. Anything
// that keeps the answer from being known counts as no: the caller then runs
// the file, which is right for every plugin. The process's own file is never
// looked at, because an upgrade may have replaced it already.
func Same(path string) bool {
	if id == "" {
		return false
	}
	stamp, err := readStamp(path)
	return err == nil && stamp == fmt.Sprintf("%-*s", stampSize, "calico-cni:"+id)
}

func readStamp(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if _, err := file.Seek(-stampSize, io.SeekEnd); err != nil {
		return "", err
	}
	stamp := make([]byte, stampSize)
	if _, err := io.ReadFull(file, stamp); err != nil {
		return "", err
	}
	return string(stamp), nil
}
