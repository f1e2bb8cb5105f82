package selector

import "slices"

// Selector is a parsed selector.
type Selector struct {
	text   string
	root   expression
	global bool
}

// Parse parses a selector. The empty one matches everything.
func Parse(text string) (*Selector, error) {
	p := parser{lexer: lexer{text: text}}
	root, err := p.selector()
	if err != nil {
		return nil, err
	}
	return &Selector{text: text, root: root, global: p.global}, nil
}

// Matches reports whether labels satisfy the selector.
func (s *Selector) Matches(labels map[string]string) bool { return s.root.matches(labels) }

// UsesGlobal reports whether global() occurs in the selector. It is always
// true, but pools may not use it.
func (s *Selector) UsesGlobal() bool { return s.global }

// String is the text that was parsed.
func (s *Selector) String() string { return s.text }

// expression is a node of the syntax tree.
type expression interface {
	matches(labels map[string]string) bool
}

type (
	always struct{}
	not    struct{ operand expression }
	and    []expression
	or     []expression
	has    struct{ label string }

	// compare and in are false for an absent label; "!=" and "not in" are their
	// negations, so they are true for one.
	compare struct {
		label    string
		value    string
		operator func(have, want string) bool
	}
	in struct {
		label  string
		values []string
	}
)

func (always) matches(map[string]string) bool { return true }

func (n not) matches(labels map[string]string) bool { return !n.operand.matches(labels) }

func (a and) matches(labels map[string]string) bool {
	return !slices.ContainsFunc(a, func(e expression) bool { return !e.matches(labels) })
}

func (o or) matches(labels map[string]string) bool {
	return slices.ContainsFunc(o, func(e expression) bool { return e.matches(labels) })
}

func (h has) matches(labels map[string]string) bool {
	_, present := labels[h.label]
	return present
}

func (c compare) matches(labels map[string]string) bool {
	have, present := labels[c.label]
	return present && c.operator(have, c.value)
}

func (i in) matches(labels map[string]string) bool {
	have, present := labels[i.label]
	return present && slices.Contains(i.values, have)
}

func equal(have, want string) bool { return have == want }
