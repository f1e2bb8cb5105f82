package upgrade

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"calico-cni/pkg/datastore/memory"
)

var errKilled = errors.New("killed")

// mortalDisk is the disk as a process sees it that is killed before its nth
// operation on it or on the datastore.
type mortalDisk struct {
	realDisk
	left *int
}

func (d mortalDisk) die() error {
	*d.left--
	if *d.left < 0 {
		return errKilled
	}
	return nil
}

func (d mortalDisk) Names(directory string) ([]string, error) {
	if err := d.die(); err != nil {
		return nil, err
	}
	return d.realDisk.Names(directory)
}

func (d mortalDisk) Remove(path string) error {
	if err := d.die(); err != nil {
		return err
	}
	return d.realDisk.Remove(path)
}

// RemoveAll may be killed when it has removed some of the files.
func (d mortalDisk) RemoveAll(path string) error {
	if err := d.die(); err != nil {
		return err
	}
	if err := d.die(); err != nil {
		_ = d.realDisk.Remove(filepath.Join(path, "lock")) // if there is one
		return err
	}
	return d.realDisk.RemoveAll(path)
}

// TestKilledAnywhere: whoever is killed at any point and begins again ends well,
// and at no point is a pod's address nobody's.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	for kills := range 2 {
		t.Run(fmt.Sprint(kills+1, " times"), func(t *testing.T) {
			t.Parallel()
			for operations := 0; ; operations++ {
				h := newHost(t)
				left := operations
				disk := mortalDisk{left: &left}
				step := func(context.Context, memory.Call, int) error { return disk.die() }
				h.store.SetHooks(memory.Hooks{
					BeforeStep: step,
					Before: func(_ context.Context, call memory.Call) error {
						if call.IsWrite() {
							return nil // each step dies by itself
						}
						return disk.die()
					},
				})
				err := h.upgrade(disk).Once(h.context())
				if left >= 0 {
					if err != nil || operations < 20 {
						t.Fatalf("not killed after %d operations: %v", operations, err)
					}
					return
				}
				h.unlost()
				if kills > 0 {
					left = operations // and once more, further on
					_ = h.upgrade(disk).Once(h.context())
					h.unlost()
				}
				h.store.SetHooks(memory.Hooks{})
				if err := h.upgrade(nil).Once(h.context()); err != nil {
					t.Fatalf("begun again after %d operations: %v", operations, err)
				}
				h.wantMoved()
				if t.Failed() {
					t.Fatalf("killed after %d operations:\n%s", operations, h.store.Dump())
				}
			}
		})
	}
}

// TestAnswerLost: the answer to each write is lost in turn; the next try goes
// on from what was written.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	for number := 1; ; number++ {
		h := newHost(t)
		writes := 0
		h.store.SetHooks(memory.Hooks{After: func(_ context.Context, call memory.Call) error {
			if call.IsWrite() {
				if writes++; writes == number {
					return memory.LoseAnswer(call)
				}
			}
			return nil
		}})
		if err := h.upgrade(nil).Once(h.context()); err != nil {
			t.Fatalf("write %d: %v", number, err)
		}
		h.wantMoved()
		if writes < number {
			return
		}
	}
}
