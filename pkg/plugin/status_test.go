package plugin

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPersisting(t *testing.T) {
	t.Parallel()
	fault := errors.New("off")
	for name, test := range map[string]struct {
		// faults is how many looks find the fault; -1: all.
		faults int
		wait   time.Duration
		want   error
	}{
		"none":              {0, 0, nil},
		"gone at the third": {2, 200 * time.Millisecond, nil},
		"stays":             {-1, time.Second, fault},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start, looks := time.Now(), 0
				err := persisting(context.Background(), func() error {
					looks++
					if test.faults < 0 || looks <= test.faults {
						return fault
					}
					return nil
				})
				if waited := time.Since(start); !errors.Is(err, test.want) || waited != test.wait {
					t.Errorf("%v after %v, want %v after %v", err, waited, test.want, test.wait)
				}
			})
		})
	}
}
