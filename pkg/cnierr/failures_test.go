package cnierr_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
)

// refusal wraps its kind and its cause, as the datastore's errors do.
type refusal struct{ kind, cause error }

func (r refusal) Error() string   { return r.kind.Error() + ": " + r.cause.Error() }
func (r refusal) Unwrap() []error { return []error{r.kind, r.cause} }

func TestGroup(t *testing.T) {
	t.Parallel()
	unavailable := errors.New("unavailable")
	late := func(object string) cnierr.Failure {
		err := refusal{unavailable, fmt.Errorf("writing %s: %w", object, context.DeadlineExceeded)}
		return cnierr.Failure{Doing: "releasing", Object: object, Err: err}
	}
	forbidden := func(object string) cnierr.Failure {
		return cnierr.Failure{Doing: "deleting", Object: object, Err: fmt.Errorf("pods %q is forbidden", object)}
	}
	for name, test := range map[string]struct {
		failures []cnierr.Failure
		want     []string
	}{
		"none": {nil, nil},
		"one":  {[]cnierr.Failure{late("a")}, []string{"releasing a: unavailable: writing a: context deadline exceeded"}},
		"the same cause": {
			[]cnierr.Failure{late("a"), late("b"), late("c"), late("d"), late("e")},
			[]string{"releasing a, b, c and 2 more: unavailable: writing a: context deadline exceeded"},
		},
		"two causes, by their first failure": {
			[]cnierr.Failure{late("a"), forbidden("x"), late("b"), forbidden("y")},
			[]string{"releasing a, b: unavailable: writing a: context deadline exceeded", `deleting x, y: pods "x" is forbidden`},
		},
		"the same cause of other work": {
			[]cnierr.Failure{late("a"), {Doing: "reading", Object: "a", Err: context.DeadlineExceeded}},
			[]string{"releasing a: unavailable: writing a: context deadline exceeded", "reading a: context deadline exceeded"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, err := range cnierr.Group(test.failures) {
				got = append(got, err.Error())
			}
			if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	if err := cnierr.Group([]cnierr.Failure{late("a"), late("b")})[0]; !errors.Is(err, unavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v does not wrap the first error", err)
	}
}

// TestGroupOfManyCauses: as many causes as objects are cut, and counted.
func TestGroupOfManyCauses(t *testing.T) {
	t.Parallel()
	var failures []cnierr.Failure
	for i := range 60 {
		failures = append(failures, cnierr.Failure{Doing: "deleting", Object: fmt.Sprint("c", i), Err: fmt.Errorf("cause %d", i)})
	}
	grouped := cnierr.Group(failures)
	if last := grouped[len(grouped)-1].Error(); len(grouped) != 9 || !strings.Contains(last, "52 more causes") {
		t.Errorf("%d errors, the last is %q", len(grouped), last)
	}
}
