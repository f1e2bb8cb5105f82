package selector

import (
	"slices"
	"strings"
)

// maxDepth bounds the recursion: parentheses and negations within each other.
const maxDepth = 100

// operators are those of one word; the others are made of two.
var operators = [...]string{"==", "!=", "in", "notin", "contains", "startswith", "endswith"}

// parser is a recursive descent parser; tok is the token looked at.
//
//	selector   = [ or ] end
//	or         = and { "||" and }
//	and        = unary { "&&" unary }
//	unary      = "!" unary | "(" or ")" | "all" "(" ")" | "global" "(" ")" | "has" "(" name ")" | comparison
//	comparison = name ( "==" | "!=" | "contains" | "starts" "with" | "ends" "with" ) string
//	           | name [ "not" ] "in" "{" [ string { "," string } [ "," ] ] "}"
//
// Words are reserved only where the grammar expects them: a label may be
// called in or has.
type parser struct {
	lexer
	tok    token
	depth  int
	global bool
}

func (p *parser) selector() (expression, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.tok.kind == end {
		return always{}, nil
	}
	root, err := p.or()
	if err != nil {
		return nil, err
	}
	if p.tok.kind != end {
		return nil, p.want(`"&&", "||" or the end`)
	}
	return root, nil
}

func (p *parser) or() (expression, error) {
	operands, err := p.chain("||", p.and)
	if err != nil || len(operands) > 1 {
		return or(operands), err
	}
	return operands[0], nil
}

func (p *parser) and() (expression, error) {
	operands, err := p.chain("&&", p.unary)
	if err != nil || len(operands) > 1 {
		return and(operands), err
	}
	return operands[0], nil
}

// chain parses operands joined by an operator; without error there is at least one.
func (p *parser) chain(operator string, operand func() (expression, error)) ([]expression, error) {
	var operands []expression
	for {
		e, err := operand()
		if err != nil {
			return nil, err
		}
		operands = append(operands, e)
		if !p.tok.is(operator) {
			return operands, nil
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
	}
}

func (p *parser) unary() (expression, error) {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > maxDepth {
		return nil, p.errorAt(p.tok.pos, "nested more than %d deep", maxDepth)
	}
	switch {
	case p.tok.is("!"):
		if err := p.advance(); err != nil {
			return nil, err
		}
		operand, err := p.unary()
		return not{operand}, err
	case p.tok.is("("):
		return p.group()
	case p.tok.kind == identifier:
		name := p.tok
		if err := p.advance(); err != nil {
			return nil, err
		}
		if p.tok.is("(") {
			return p.call(name)
		}
		return p.comparison(name.text)
	}
	return nil, p.want("a label name, a function, \"!\" or \"(\"")
}

func (p *parser) group() (expression, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	e, err := p.or()
	if err != nil {
		return nil, err
	}
	return e, p.expect(")")
}

// call parses what follows the name of a function.
func (p *parser) call(function token) (expression, error) {
	switch function.text {
	case "all", "global", "has":
	default:
		return nil, p.errorAt(function.pos, "%q is not a function: use all(), global() or has(label)", function.text)
	}
	if err := p.expect("("); err != nil {
		return nil, err
	}
	if function.text != "has" {
		p.global = p.global || function.text == "global"
		return always{}, p.expect(")")
	}
	if p.tok.kind != identifier {
		return nil, p.want("a label name")
	}
	label := p.tok.text
	if err := p.advance(); err != nil {
		return nil, err
	}
	return has{label}, p.expect(")")
}

// comparison parses what follows the label in a comparison.
func (p *parser) comparison(label string) (expression, error) {
	word, err := p.operator()
	if err != nil {
		return nil, err
	}
	switch word {
	case "in":
		values, err := p.set()
		return in{label, values}, err
	case "notin":
		values, err := p.set()
		return not{in{label, values}}, err
	}
	value, err := p.value()
	if err != nil {
		return nil, err
	}
	switch word {
	case "!=":
		return not{compare{label, value, equal}}, nil
	case "contains":
		return compare{label, value, strings.Contains}, nil
	case "startswith":
		return compare{label, value, strings.HasPrefix}, nil
	case "endswith":
		return compare{label, value, strings.HasSuffix}, nil
	}
	return compare{label, value, equal}, nil
}

// operator takes an operator and returns it without inner blanks.
func (p *parser) operator() (string, error) {
	second := ""
	switch {
	case p.tok.is("not"):
		second = "in"
	case p.tok.is("starts"), p.tok.is("ends"):
		second = "with"
	case !slices.ContainsFunc(operators[:], p.tok.is):
		return "", p.want(`"==", "!=", "in", "not in", "contains", "starts with" or "ends with"`)
	}
	first := p.tok.text
	if err := p.advance(); err != nil || second == "" {
		return first, err
	}
	return first + second, p.expect(second)
}

// set parses the values of in and not in.
func (p *parser) set() ([]string, error) {
	if err := p.expect("{"); err != nil {
		return nil, err
	}
	var values []string
	for !p.tok.is("}") {
		value, err := p.value()
		if err != nil {
			return nil, err
		}
		values = append(values, value)
		if p.tok.is("}") {
			break
		}
		if err := p.expect(","); err != nil {
			return nil, err
		}
	}
	return values, p.expect("}")
}

func (p *parser) value() (string, error) {
	if p.tok.kind != quoted {
		return "", p.want("a string in quotes")
	}
	text := p.tok.text
	return text, p.advance()
}

// expect takes the symbol or word that must stand here.
func (p *parser) expect(text string) error {
	if !p.tok.is(text) {
		return p.want(`"` + text + `"`)
	}
	return p.advance()
}

func (p *parser) advance() error {
	var err error
	p.tok, err = p.next()
	return err
}

func (p *parser) want(what string) error {
	return p.errorAt(p.tok.pos, "want %s, found %s", what, p.tok)
}
