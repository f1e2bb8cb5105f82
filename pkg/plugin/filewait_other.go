//go:build !linux

package plugin

import "errors"

// watchDirectory is not needed here: the looks find the file.
func watchDirectory(string) (directoryWatch, error) { return nil, errors.ErrUnsupported }
