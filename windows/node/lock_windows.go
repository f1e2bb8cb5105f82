package node

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/windows"

	"calico-cni/windows/hns"
)

// networkMutex is the name that all plugins and node agents of a host use.
const networkMutex = "TigeraCalicoCNINetworkMutex"

// mutexSlice is how long the mutex is waited for before ctx is looked at again.
const mutexSlice = 50 // ms

// Lock implements hns.Host. A mutex belongs to a thread, so the caller keeps
// its thread until it unlocks. If a holder died, Windows gives the mutex on.
func (Host) Lock(ctx context.Context) (unlock func(), err error) {
	name, err := windows.UTF16PtrFromString(networkMutex)
	if err != nil {
		return nil, err
	}
	handle, err := windows.CreateMutex(nil, false, name)
	if handle == 0 || err != nil && !errors.Is(err, windows.ERROR_ALREADY_EXISTS) {
		return nil, fmt.Errorf("opening the mutex %s: %w", networkMutex, err)
	}
	runtime.LockOSThread()
	if err := await(ctx, handle); err != nil {
		runtime.UnlockOSThread()
		_ = windows.CloseHandle(handle)
		return nil, fmt.Errorf("mutex %s: %w", networkMutex, err)
	}
	return func() {
		_ = windows.ReleaseMutex(handle) // fails only for a thread that has it not
		_ = windows.CloseHandle(handle)
		runtime.UnlockOSThread()
	}, nil
}

func await(ctx context.Context, mutex windows.Handle) error {
	for {
		event, err := windows.WaitForSingleObject(mutex, mutexSlice)
		switch {
		case event == windows.WAIT_OBJECT_0 || event == windows.WAIT_ABANDONED:
			return nil
		case event != uint32(windows.WAIT_TIMEOUT):
			return fmt.Errorf("waiting: %w", err)
		case ctx.Err() != nil:
			return hns.ErrLockHeld
		}
	}
}
