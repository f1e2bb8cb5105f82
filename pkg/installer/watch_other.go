//go:build !linux

package installer

import (
	"context"
	"time"
)

// lookAgain is the time between two looks where nothing tells of changes.
const lookAgain = 5 * time.Second

// watch looks at a directory from time to time.
func watch(ctx context.Context, directory string, changed chan<- struct{}) error {
	return poll(ctx, directory, lookAgain, changed)
}
