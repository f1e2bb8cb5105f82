package netconf

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// scanned reports whether an installer's template may have written the value
// at a path. What a runtime adds is no template's, whatever it looks like.
func scanned(path string) bool {
	root, _, _ := strings.Cut(strings.ToLower(path), ".")
	return root != "prevresult" && root != "runtimeconfig" && root != "args"
}

// findPlaceholders lists the paths of values that were never filled in.
func findPlaceholders(document map[string]any) []string {
	var paths []string
	var walk func(value any, path string)
	walk = func(value any, path string) {
		if !scanned(path) {
			return
		}
		switch v := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				walk(v[key], join(path, key))
			}
		case []any:
			for i, element := range v {
				walk(element, path+"["+strconv.Itoa(i)+"]")
			}
		default:
			if isPlaceholder(value) {
				paths = append(paths, path)
			}
		}
	}
	walk(document, "")
	return paths
}

// isPlaceholder reports whether a value is a text of the form __X__ or <x>, or
// holds __X__.
func isPlaceholder(value any) bool {
	text, isText := value.(string)
	if !isText {
		return false
	}
	if len(text) > 2 && text[0] == '<' && text[len(text)-1] == '>' {
		return !strings.ContainsAny(text[1:len(text)-1], "<>")
	}
	return holdsTemplateName(text)
}

// holdsTemplateName looks for __X__, where X is made of upper-case letters,
// digits and single underscores, beginning and ending with one of the former.
func holdsTemplateName(text string) bool {
	parts := strings.Split(text, "__")
	for _, part := range parts[1:max(1, len(parts)-1)] {
		if isTemplateName(part) {
			return true
		}
	}
	return false
}

func isTemplateName(s string) bool {
	if s == "" || s[0] == '_' || s[len(s)-1] == '_' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c != '_' && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// isPlaceholder reports whether the value at a path, of any case, was a
// placeholder.
func (c *Config) isPlaceholder(path string) bool {
	return slices.ContainsFunc(c.Placeholders, func(p string) bool { return strings.EqualFold(p, path) })
}
