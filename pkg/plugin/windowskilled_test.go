package plugin

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/windows/hnssim"
)

var errKilled = errors.New("the process is dead")

// killedAt runs a verb of a process that dies at a call of HNS, which is still
// carried out or not: from then on nothing that it does reaches HNS or the
// datastore, and the host takes its lock back.
func (w *windowsNode) killedAt(at int, carriedOut bool, run func() error) {
	w.t.Helper()
	dead := false
	w.engine.Inject(hnssim.Fault{Skip: at, Times: 1, Code: 0x800706BA, After: carriedOut, During: func() { dead = true }})
	w.engine.Inject(hnssim.Fault{Skip: at + 1, Code: 0x800706BA})
	w.store.SetHooks(memory.Hooks{Before: func(context.Context, memory.Call) error {
		if dead {
			return errKilled
		}
		return nil
	}})
	_ = run() // what a dead process says, nobody hears
	w.engine.ClearFaults()
	w.store.SetHooks(memory.Hooks{})
	if !dead {
		w.t.Fatalf("there is no call %d of HNS", at)
	}
}

// wantNothing checks that no container is left, nor anything of one.
func (w *windowsNode) wantNothing(at int, carriedOut bool) {
	w.t.Helper()
	if left := w.podEndpoints(); len(left) > 0 || len(w.endpoints()) > 0 {
		w.t.Errorf("call %d (carried out: %t): endpoints %v, records %v are left", at, carriedOut, left, w.endpoints())
	}
	for address, handle := range w.allocated() {
		if handle != model.ReserveHandleID {
			w.t.Errorf("call %d (carried out: %t): %s is still %s's", at, carriedOut, address, handle)
		}
	}
	for _, entry := range w.entries(datastore.ListHandles{}) {
		if key, ok := entry.Key.(model.HandleKey); !ok || key.ID != model.ReserveHandleID {
			w.t.Errorf("call %d (carried out: %t): handle %v is left", at, carriedOut, entry.Key)
		}
	}
	if names := w.networkNames(); len(names) > 1 {
		w.t.Errorf("call %d (carried out: %t): networks %v", at, carriedOut, names)
	}
}

func (w *windowsNode) gc(valid ...any) error {
	w.now = w.now.Add(time.Minute)
	return w.plugin.GC(deadline(w.t), w.pod(invocation.GC, "web-0", "cni.dev/valid-attachments", valid))
}

// TestWindowsKilled kills ADD and DEL at each call of HNS. Repeating them makes
// good what is half done; so does GC alone.
func TestWindowsKilled(t *testing.T) {
	t.Parallel()
	calls := func(verb invocation.Verb) int {
		w := onWindows(t)
		w.sandbox("web-0")
		if verb == invocation.Del {
			w.addPod("web-0")
		}
		w.engine.ClearLog()
		if verb == invocation.Add {
			w.addPod("web-0")
		} else {
			w.delPod("web-0")
		}
		return len(w.engine.Calls())
	}
	for _, verb := range []invocation.Verb{invocation.Add, invocation.Del} {
		t.Run(string(verb), func(t *testing.T) {
			t.Parallel()
			for at := range calls(verb) {
				for _, carriedOut := range []bool{false, true} {
					w := onWindows(t)
					w.killOnce(verb, at, carriedOut)
					repeat := w.pod(invocation.Add, "web-0")
					if _, err := w.runAdd(repeat); err != nil {
						t.Errorf("killed at call %d (carried out: %t): ADD: %v", at, carriedOut, err)
					}
					if names := w.podEndpoints(); !slices.Equal(names, []string{"web-0_Calico"}) {
						t.Errorf("killed at call %d (carried out: %t): endpoints %v", at, carriedOut, names)
					}
					w.delPod("web-0")
					w.wantNothing(at, carriedOut)

					w = onWindows(t)
					w.killOnce(verb, at, carriedOut)
					if err := w.gc(); err != nil {
						t.Errorf("killed at call %d (carried out: %t): GC: %v", at, carriedOut, err)
					}
					w.wantNothing(at, carriedOut)
				}
			}
		})
	}
}

// killOnce kills one call of a verb on a fresh node.
func (w *windowsNode) killOnce(verb invocation.Verb, at int, carriedOut bool) {
	w.t.Helper()
	w.sandbox("web-0")
	if verb == invocation.Del {
		w.addPod("web-0")
	}
	call := w.pod(verb, "web-0")
	w.killedAt(at, carriedOut, func() error {
		if verb == invocation.Del {
			return w.plugin.Del(deadline(w.t), call)
		}
		_, err := w.runAdd(call)
		return err
	})
}

// TestWindowsDelFailures makes each call of DEL fail once, before and after its
// work. DEL says so, unless it is done all the same, and its repetition leaves
// nothing.
func TestWindowsDelFailures(t *testing.T) {
	t.Parallel()
	w := onWindows(t)
	w.addPod("web-0")
	w.engine.ClearLog()
	w.delPod("web-0")
	for at := range w.engine.Calls() {
		for _, after := range []bool{false, true} {
			w := onWindows(t)
			w.addPod("web-0")
			w.engine.Inject(hnssim.Fault{Skip: at, Times: 1, Code: 0x800706BA, After: after})
			err := w.plugin.Del(deadline(t), w.pod(invocation.Del, "web-0"))
			w.engine.ClearFaults()
			if left := w.podEndpoints(); err == nil && len(left) > 0 {
				t.Errorf("call %d (after its work: %t): DEL succeeds and leaves %v", at, after, left)
			}
			w.delPod("web-0")
			w.wantNothing(at, after)
		}
	}
}
