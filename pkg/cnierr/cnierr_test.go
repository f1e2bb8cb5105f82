package cnierr

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

func TestCodeOf(t *testing.T) {
	t.Parallel()
	executed := &types.Error{Code: 42, Msg: "no"}
	cause := errors.New("cause")
	for name, test := range map[string]struct {
		err  error
		want Code
	}{
		"plain":                  {cause, Unclassified},
		"own":                    {New(NoPool, "x"), NoPool},
		"own, wrapped":           {fmt.Errorf("doing: %w", New(NoPool, "x")), NoPool},
		"executed plugin's":      {fmt.Errorf("doing: %w", executed), 42},
		"wrap gives a code":      {Wrap(NameTaken, cause, "doing"), NameTaken},
		"wrap keeps a code":      {Wrap(NameTaken, New(NoPool, "x"), "doing"), NoPool},
		"wrap keeps a foreign":   {Wrap(NameTaken, executed, "doing"), 42},
		"outermost of two wins":  {New(Internal, "y: %w", New(NoPool, "x")), Internal},
		"wrap of nil stays none": {Wrap(NameTaken, nil, "doing"), Unclassified},
	} {
		if got := CodeOf(test.err); got != test.want {
			t.Errorf("%s: code %d, want %d", name, got, test.want)
		}
	}
	if err := New(Internal, "two: %w, %w", cause, executed); !errors.Is(err, cause) || !errors.Is(err, executed) {
		t.Error("a cause is not reachable")
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"without details": {New(NoPool, "no pool"),
			"{\n    \"cniVersion\": \"1.0.0\",\n    \"code\": 101,\n    \"msg\": \"no pool\"\n}\n"},
		"details of a cause": {Wrap(Unclassified, &Error{Code: 42, Msg: "no", Details: "why"}, "doing"),
			"{\n    \"cniVersion\": \"1.0.0\",\n    \"code\": 42,\n    \"msg\": \"doing: no\",\n    \"details\": \"why\"\n}\n"},
		"two causes": {New(NoPool, "both: %w", errors.Join(errors.New("a"), errors.New("b"))),
			"{\n    \"cniVersion\": \"1.0.0\",\n    \"code\": 101,\n    \"msg\": \"both: a; b\"\n}\n"},
		"details of an executed plugin": {Wrap(Unclassified, &types.Error{Code: 42, Msg: "no", Details: "why"}, "IPAM"),
			"{\n    \"cniVersion\": \"1.0.0\",\n    \"code\": 42,\n    \"msg\": \"IPAM: no; why\",\n    \"details\": \"why\"\n}\n"},
	} {
		var out bytes.Buffer
		if err := Print(&out, "1.0.0", test.err); err != nil {
			t.Fatal(err)
		}
		if out.String() != test.want {
			t.Errorf("%s: printed %s, want %s", name, out.String(), test.want)
		}
	}
}
