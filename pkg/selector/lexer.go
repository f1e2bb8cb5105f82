package selector

import (
	"fmt"
	"strings"
)

// maxIdentifier is the longest label name.
const maxIdentifier = 512

type kind int

const (
	end kind = iota
	identifier
	quoted
	symbol
)

// token is one word of a selector; text is without quotes.
type token struct {
	kind kind
	text string
	pos  int
}

// is reports whether the token is this symbol or this unquoted word.
func (t token) is(text string) bool {
	return (t.kind == symbol || t.kind == identifier) && t.text == text
}

// String describes the token for messages.
func (t token) String() string {
	switch t.kind {
	case end:
		return "the end"
	case quoted:
		return fmt.Sprintf("string %q", t.text)
	default:
		return fmt.Sprintf("%q", t.text)
	}
}

// lexer cuts a selector into tokens.
type lexer struct {
	text string
	pos  int
}

// symbols, longer ones before their beginnings.
var symbols = [...]string{"==", "!=", "&&", "||", "!", "(", ")", "{", "}", ","}

func (l *lexer) next() (token, error) {
	for l.pos < len(l.text) && (l.text[l.pos] == ' ' || l.text[l.pos] == '\t') {
		l.pos++
	}
	rest := l.text[l.pos:]
	switch {
	case rest == "":
		return token{kind: end, pos: l.pos}, nil
	case rest[0] == '"' || rest[0] == '\'':
		return l.quoted(rest)
	case isIdentifier(rest[0]):
		return l.identifier(rest)
	}
	for _, s := range symbols {
		if strings.HasPrefix(rest, s) {
			return l.take(symbol, s, len(s)), nil
		}
	}
	return token{}, l.errorAt(l.pos, "unexpected %q", firstRune(rest))
}

// quoted takes a string: it ends with the quote it begins with, and there are
// no escapes.
func (l *lexer) quoted(rest string) (token, error) {
	length := strings.IndexByte(rest[1:], rest[0])
	if length < 0 {
		return token{}, l.errorAt(l.pos, "the string that begins here has no closing %c", rest[0])
	}
	return l.take(quoted, rest[1:1+length], length+2), nil
}

func (l *lexer) identifier(rest string) (token, error) {
	length := 1
	for length < len(rest) && isIdentifier(rest[length]) {
		length++
	}
	if length > maxIdentifier {
		return token{}, l.errorAt(l.pos, "the name that begins here has %d characters, at most %d are allowed", length, maxIdentifier)
	}
	return l.take(identifier, rest[:length], length), nil
}

func (l *lexer) take(k kind, text string, length int) token {
	t := token{kind: k, text: text, pos: l.pos}
	l.pos += length
	return t
}

// maxShown is how much of a selector an error repeats.
const maxShown = 200

// errorAt names the selector and the place, counted in bytes from 1.
func (l *lexer) errorAt(pos int, format string, args ...any) error {
	shown := l.text
	if len(shown) > maxShown {
		shown = shown[:maxShown] + "…"
	}
	return fmt.Errorf("selector %q, character %d: %s", shown, pos+1, fmt.Sprintf(format, args...))
}

func firstRune(s string) string {
	for _, r := range s {
		return string(r)
	}
	return ""
}

func isIdentifier(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '_' || c == '.' || c == '/' || c == '-'
}
