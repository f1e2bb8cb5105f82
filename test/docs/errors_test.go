package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestEveryErrorCodeIsDocumented compares the constants of pkg/cnierr with the
// sections of docs/errors.md, in both directions.
func TestEveryErrorCodeIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(text), "\n### ")[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		sections[heading] = body
	}

	codes := declaredCodes(t)
	for _, code := range codes {
		body, found := sections[code]
		if !found {
			t.Errorf("docs/errors.md has no section %q", code)
			continue
		}
		delete(sections, code)
		for _, part := range []string{"Meaning", "Typical message", "Cause", "Remedy"} {
			if !regexp.MustCompile(`(?m)^\| ` + part + ` \| .+ \|$`).MatchString(body) {
				t.Errorf("section %q of docs/errors.md says nothing under %q", code, part)
			}
		}
	}
	for heading := range sections {
		t.Errorf("section %q of docs/errors.md is about no code", heading)
	}
	if len(codes) < 30 {
		t.Errorf("only %d codes found in pkg/cnierr: does this test still read them right?", len(codes))
	}
}

// declaredCodes returns "<number> <name>" of every constant of type Code.
func declaredCodes(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../pkg/cnierr/cnierr.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, isValue := n.(*ast.ValueSpec)
		if !isValue {
			return true
		}
		if kind, isName := spec.Type.(*ast.Ident); !isName || kind.Name != "Code" {
			return true
		}
		value, isLiteral := spec.Values[0].(*ast.BasicLit)
		if !isLiteral {
			t.Errorf("the value of %s is no literal", spec.Names[0].Name)
			return true
		}
		codes = append(codes, fmt.Sprintf("%s %s", value.Value, spec.Names[0].Name))
		return true
	})
	return codes
}
