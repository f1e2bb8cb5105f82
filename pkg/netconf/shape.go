package netconf

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"calico-cni/pkg/cnierr"
)

// shape is the outcome of holding the untyped document against Config. Unlike
// encoding/json it finds every misfit, with its full path, and keys that look
// like misspellings.
type shape struct {
	problems []error
	warnings []string
	// fitting is the document without what does not fit, so that one wrong
	// value does not hide the others.
	fitting map[string]any
	wrong   map[string]bool
}

// misfits reports whether the value at a path had the wrong type.
func (s *shape) misfits(path string) bool { return s.wrong[path] }

// fit compares a document with Config. Placeholders are left out like misfits,
// but are no problem here: they count as absent.
func fit(document map[string]any) shape {
	f := fitter{ipamType: textAt(document, "ipam", "type")}
	f.fitting = f.object(document, reflect.TypeFor[Config](), "")
	return f.shape
}

type fitter struct {
	shape
	ipamType string
}

// value returns the value without its misfits; keep is false if nothing is left.
func (f *fitter) value(value any, want reflect.Type, path string) (fitting any, keep bool) {
	if value == nil || want == reflect.TypeFor[json.RawMessage]() || want.Kind() == reflect.Interface {
		return value, true
	}
	if isPlaceholder(value) && scanned(path) {
		return nil, false
	}
	switch got := value.(type) {
	case map[string]any:
		switch want.Kind() {
		case reflect.Struct:
			return f.object(got, want, path), true
		case reflect.Map:
			return f.entries(got, want.Elem(), path), true
		}
	case []any:
		if want.Kind() == reflect.Slice {
			return f.list(got, want.Elem(), path), true
		}
	default:
		if fitsScalar(value, want) {
			return value, true
		}
	}
	f.misfit(value, want, path)
	return nil, false
}

func (f *fitter) object(object map[string]any, want reflect.Type, path string) map[string]any {
	known := members(want)
	kept := make(map[string]any, len(object))
	spelled := make(map[string]string, len(object))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		name, member := lookUp(known, key)
		if member == nil {
			f.unknown(key, path, known)
			continue
		}
		if earlier, repeated := spelled[name]; repeated {
			f.problems = append(f.problems, cnierr.New(cnierr.InvalidConfiguration,
				"network configuration keys %s and %s are the same key: remove one", join(path, earlier), join(path, key)))
			continue
		}
		spelled[name] = key
		if value, keep := f.value(object[key], member, join(path, name)); keep {
			kept[name] = value
		}
	}
	return kept
}

func (f *fitter) entries(object map[string]any, want reflect.Type, path string) map[string]any {
	kept := make(map[string]any, len(object))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if value, keep := f.value(object[key], want, join(path, key)); keep {
			kept[key] = value
		}
	}
	return kept
}

func (f *fitter) list(list []any, want reflect.Type, path string) []any {
	kept := make([]any, 0, len(list))
	for i, element := range list {
		if value, keep := f.value(element, want, path+"["+strconv.Itoa(i)+"]"); keep {
			kept = append(kept, value)
		}
	}
	return kept
}

func (f *fitter) misfit(value any, want reflect.Type, path string) {
	if f.wrong == nil {
		f.wrong = make(map[string]bool)
	}
	f.wrong[path] = true
	what := found(value)
	if want == reflect.TypeFor[Secret]() {
		what = kindOf(value)
	}
	f.problems = append(f.problems, cnierr.New(cnierr.InvalidConfiguration,
		"network configuration key %s: want %s, found %s%s", path, wanted(want), what, remedy(value, want)))
}

// unknown warns of a key that is nearly a known one.
func (f *fitter) unknown(key, path string, known map[string]reflect.Type) {
	if !f.closed(path) {
		return
	}
	if near := nearest(key, slices.Sorted(maps.Keys(known))); near != "" {
		f.warnings = append(f.warnings, fmt.Sprintf("unknown key %q: did you mean %q", join(path, key), near))
	}
}

// closed reports whether we know all keys that are usual in an object. What
// runtimes and foreign IPAM plugins put into theirs is not ours to doubt.
func (f *fitter) closed(path string) bool {
	switch {
	case path == "ipam":
		return f.ipamType == IPAMCalico || f.ipamType == IPAMHostLocal
	case path == "runtimeConfig", path == "args", strings.HasPrefix(path, "args."):
		return false
	}
	return true
}

// members are the keys of a struct, those of embedded structs included.
func members(of reflect.Type) map[string]reflect.Type {
	known := make(map[string]reflect.Type, 2*of.NumField())
	addMembers(known, of)
	return known
}

// addMembers does what reflect.VisibleFields is for at a fraction of its cost,
// which every verb would pay.
func addMembers(known map[string]reflect.Type, of reflect.Type) {
	for i := range of.NumField() {
		field := of.Field(i)
		if field.Anonymous {
			addMembers(known, field.Type)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			known[name] = field.Type
		}
	}
}

// lookUp finds a key as encoding/json does: exactly, else without regard to case.
func lookUp(known map[string]reflect.Type, key string) (string, reflect.Type) {
	if member, ok := known[key]; ok {
		return key, member
	}
	for name, member := range known {
		if strings.EqualFold(name, key) {
			return name, member
		}
	}
	return "", nil
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// textAt is the string at a path of the document, or "".
func textAt(document map[string]any, path ...string) string {
	var value any = document
	for _, key := range path {
		object, _ := value.(map[string]any)
		value = member(object, key)
	}
	text, _ := value.(string)
	return text
}
