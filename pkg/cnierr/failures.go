package cnierr

import (
	"errors"
	"fmt"
	"strings"
)

// Failure is one of many that were met while the rest was done.
type Failure struct {
	// Doing is what failed, of every such object: "releasing the handles".
	Doing string
	// Object names the one.
	Object string
	Err    error
}

// A report stays readable: it names so many objects of a cause, and so many
// causes.
const (
	fewNames  = 3
	fewCauses = 8
)

// Group makes one error of all failures of the same work that have the same
// cause, such as a deadline that passed: it names a few of the objects, counts
// the others and wraps the first error. The order is that of the first failures.
func Group(failures []Failure) []error {
	type group struct{ doing, cause string }
	var order []group
	members := map[group][]Failure{}
	for _, failure := range failures {
		g := group{failure.Doing, failure.kind()}
		if members[g] == nil {
			order = append(order, g)
		}
		members[g] = append(members[g], failure)
	}
	var grouped []error
	for _, g := range order[:min(len(order), fewCauses)] {
		grouped = append(grouped, fmt.Errorf("%s %s: %w", g.doing, names(members[g]), members[g][0].Err))
	}
	if others := len(order) - len(grouped); others > 0 {
		grouped = append(grouped, fmt.Errorf("and failures of %d more causes, which the log has", others))
	}
	return grouped
}

// kind is the text of the cause without what is quoted: the names of objects.
func (f Failure) kind() string {
	var kind strings.Builder
	for i, part := range strings.Split(cause(f.Err).Error(), `"`) {
		if i%2 == 0 {
			kind.WriteString(part)
		}
	}
	return kind.String()
}

func names(failures []Failure) string {
	var few []string
	for _, failure := range failures[:min(len(failures), fewNames)] {
		few = append(few, failure.Object)
	}
	text := strings.Join(few, ", ")
	if more := len(failures) - len(few); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// cause is the innermost error. Of several that are wrapped together the last
// one is: the first says of what kind it is.
func cause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if several, ok := err.(interface{ Unwrap() []error }); ok && len(several.Unwrap()) > 0 {
			inner = several.Unwrap()[len(several.Unwrap())-1]
		}
		if inner == nil {
			return err
		}
		err = inner
	}
}
