package selector

import (
	"strings"
	"testing"
)

func TestMatches(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"zone": "eu-west-1", "rack": "7", "empty": "", "projectcalico.org/namespace": "shop", "in": "x", "has": "y", "not": "z"}
	tests := []struct {
		selector string
		want     bool
	}{
		{"", true},
		{" \t", true},
		{"all()", true},
		{"all( )", true},
		{"global()", true},
		{"!all()", false},

		{`zone == "eu-west-1"`, true},
		{`zone == 'eu-west-1'`, true},
		{`zone=="us"`, false},
		{`absent == ""`, false},
		{`empty == ""`, true},
		{`zone != "us"`, true},
		{`zone != "eu-west-1"`, false},
		{`absent != "us"`, true},

		{`zone in {"us","eu-west-1"}`, true},
		{`zone in{'us'}`, false},
		{`absent in {""}`, false},
		{`zone in {}`, false},
		{`zone in {"eu-west-1",}`, true},
		{`zone not in {"us"}`, true},
		{`zone not in {"eu-west-1"}`, false},
		{`absent not in {"us"}`, true},
		{`zone not in {}`, true},
		{"zone not \t in {\"us\"}", true},
		{`zone notin {"us"}`, true},

		{`zone contains "west"`, true},
		{`zone contains "east"`, false},
		{`zone contains ""`, true},
		{`absent contains ""`, false},
		{`zone starts with "eu"`, true},
		{`zone starts  with "west"`, false},
		{`zone startswith "eu"`, true},
		{`absent starts with ""`, false},
		{`zone ends with "-1"`, true},
		{`zone ends with "eu"`, false},
		{`zone endswith "-1"`, true},
		{`absent ends with ""`, false},

		{`has(zone)`, true},
		{`has( zone )`, true},
		{`has(empty)`, true},
		{`has(absent)`, false},
		{`!has(absent)`, true},
		{`! has(zone)`, false},
		{`has(projectcalico.org/namespace)`, true},

		{`!zone == "us"`, true},
		{`!!has(zone)`, true},
		{`has(zone) && has(rack)`, true},
		{`has(zone) && has(absent)`, false},
		{`has(absent) || has(rack)`, true},
		{`has(absent)||has(rack)&&has(zone)`, true},
		{"(has(zone))", true},

		// ! binds tighter than &&, && tighter than ||.
		{`!has(absent) && has(zone)`, true},
		{`!has(zone) && has(absent)`, false},
		{`!(has(zone) && has(absent))`, true},
		{`has(zone) || has(absent) && has(absent)`, true},
		{`(has(zone) || has(absent)) && has(absent)`, false},
		{`has(absent) && has(absent) || has(zone)`, true},

		// Words are reserved only where the grammar expects them.
		{`in in {"x"}`, true},
		{`has == "y"`, true},
		{`not not in {"x"}`, true},
		{`has(in)`, true},

		{`zone == "a'b"`, false},
		{`zone != 'a"b\'`, true},
		{"\tzone\t==\t\"eu-west-1\" ", true},
	}
	for _, tt := range tests {
		t.Run(tt.selector, func(t *testing.T) {
			t.Parallel()
			s, err := Parse(tt.selector)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Matches(labels); got != tt.want {
				t.Errorf("Matches = %v, want %v", got, tt.want)
			}
			if s.String() != tt.selector {
				t.Errorf("String = %q", s)
			}
		})
	}
}

func TestMatchesWithoutLabels(t *testing.T) {
	t.Parallel()
	for selector, want := range map[string]bool{"": true, "has(a)": false, `a != "b"`: true, `a not in {"b"}`: true} {
		s, err := Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Matches(nil); got != want {
			t.Errorf("%q matches no labels: %v, want %v", selector, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		selector string
		message  string
	}{
		{"zone", `character 5: want "==", "!=", "in"`},
		{`zone = "x"`, `character 6: unexpected "="`},
		{`zone == x`, `character 9: want a string in quotes, found "x"`},
		{`zone == "x`, `character 9: the string that begins here has no closing "`},
		{`zone == 'x"`, `character 9: the string that begins here has no closing '`},
		{`"zone" == "x"`, `character 1: want a label name`},
		{`zone "==" "x"`, `character 6: want "==", "!="`},
		{`zone "not" in {}`, `character 6: want "==", "!="`},
		{`all() trailing`, `character 7: want "&&", "||" or the end, found "trailing"`},
		{`zone == "x" "y"`, `character 13: want "&&", "||" or the end, found string "y"`},
		{`all`, `character 4: want "=="`},
		{`all(`, `character 5: want ")", found the end`},
		{`all(x)`, `character 5: want ")"`},
		{`has()`, `character 5: want a label name`},
		{`has("x")`, `character 5: want a label name`},
		{`any()`, `character 1: "any" is not a function`},
		{`(all()`, `character 7: want ")", found the end`},
		{`all())`, `character 6: want "&&", "||" or the end`},
		{`()`, `character 2: want a label name`},
		{`all() &&`, `character 9: want a label name, a function`},
		{`&& all()`, `character 1: want a label name`},
		{`all() & all()`, `character 7: unexpected "&"`},
		{`!`, `character 2: want a label name`},
		{`k in "a"`, `character 6: want "{"`},
		{`k in {,}`, `character 7: want a string`},
		{`k in {"a",,}`, `character 11: want a string`},
		{`k in {"a" "b"}`, `character 11: want ","`},
		{`k in {"a"`, `character 10: want ","`},
		{`k not == "a"`, `character 7: want "in"`},
		{`k starts "a"`, `character 10: want "with"`},
		{`k IN {"a"}`, `character 3: want "=="`},
		{"all()\n", `character 6: unexpected "\n"`},
		{`käse == "x"`, `character 2: unexpected "ä"`},
		{strings.Repeat("k", 513) + ` == "x"`, `has 513 characters, at most 512`},
		{strings.Repeat("(", 101) + "all()" + strings.Repeat(")", 101), "nested more than 100 deep"},
		{strings.Repeat("!", 1<<20) + "all()", "nested more than 100 deep"},
	}
	for _, tt := range tests {
		name := tt.selector[:min(40, len(tt.selector))]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(tt.selector)
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), tt.message) {
				t.Errorf("error %q does not contain %q", err, tt.message)
			}
		})
	}
	if _, err := Parse("zone ="); err == nil || !strings.HasPrefix(err.Error(), `selector "zone ="`) {
		t.Errorf("error %v does not name the selector", err)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for _, selector := range []string{
		strings.Repeat("k", 512) + ` == "x"`,
		strings.Repeat("(", 99) + "all()" + strings.Repeat(")", 99),
		"all()" + strings.Repeat(" && all()", 10_000),
	} {
		if _, err := Parse(selector); err != nil {
			t.Errorf("refused: %.200v", err)
		}
	}
}

func TestUsesGlobal(t *testing.T) {
	t.Parallel()
	for selector, want := range map[string]bool{
		"global()": true, "has(a) || !(global())": true, "all()": false, `global == "x"`: false, "": false,
	} {
		if s, err := Parse(selector); err != nil || s.UsesGlobal() != want {
			t.Errorf("UsesGlobal of %q is not %v (%v)", selector, want, err)
		}
	}
}

// FuzzParse: a selector and its negation never match the same labels, and
// parentheses change nothing.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "all()", `zone == "a" && !has(b) || c in {"d", 'e',}`, `a not in {}`, `k starts with "x"`} {
		f.Add(seed, "zone", "a")
	}
	f.Fuzz(func(t *testing.T, text, label, value string) {
		s, err := Parse(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "selector ") {
				t.Errorf("error %q does not name the selector", err)
			}
			return
		}
		if strings.Trim(text, " \t") == "" || strings.Count(text, "(")+strings.Count(text, "!") > maxDepth-3 {
			return
		}
		labels := map[string]string{label: value}
		grouped, err := Parse("(" + text + ")")
		if err != nil || grouped.Matches(labels) != s.Matches(labels) {
			t.Errorf("(%s) differs from it: %v", text, err)
		}
		negated, err := Parse("!(" + text + ")")
		if err != nil || negated.Matches(labels) == s.Matches(labels) {
			t.Errorf("!(%s) does not negate it: %v", text, err)
		}
	})
}
