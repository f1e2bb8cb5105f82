package installer

import (
	"encoding/json"
	"reflect"
	"testing"

	calicocni "calico-cni"
)

// FuzzCutMember: what is left is the same object without the member.
func FuzzCutMember(f *testing.F) {
	for _, seed := range []string{`{"x":1}`, `{"a":[{"x":"}"}],"x":{"y":","},"b":1e9}`, " {\n\"x\" : 1 ,\"x\":2, \"\\u0078\":3}\n", calicocni.ConfigTemplate} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var before, after map[string]any
		if json.Unmarshal(text, &before) != nil || before == nil {
			return
		}
		cut, err := cutMember(text, "x")
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if err := json.Unmarshal(cut, &after); err != nil {
			t.Fatalf("%q became %q: %v", text, cut, err)
		}
		delete(before, "x")
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%q became %q", text, cut)
		}
	})
}

// FuzzTemplate: what is rendered is a JSON object, and nothing panics.
func FuzzTemplate(f *testing.F) {
	f.Add(calicocni.ConfigTemplate)
	f.Add(`{"linux":{"plugins":[{"type":"calico","ipam":{}}]},"windows":{}}`)
	f.Add(`{"type":"__LOG_LEVEL__","cniVersions":["1.0.0"]`)
	f.Fuzz(func(t *testing.T, template string) {
		body, err := render(template, values{"LOG_LEVEL": text(`"`), "CNI_MTU": bare("1500")}, "linux")
		if err != nil {
			return
		}
		if _, err := object(body); err != nil {
			t.Fatalf("%q became %q: %v", template, body, err)
		}
		_, _ = inspect(body) // whether it is a configuration is not the question
	})
}

// FuzzValue: no value changes the structure of a configuration.
func FuzzValue(f *testing.F) {
	const template = `{"a":"__LOG_LEVEL__","b":["__LOG_LEVEL__","x__LOG_LEVEL__y"],"linux":{"windows":"__LOG_LEVEL__"}}`
	f.Add("info")
	f.Add(`","b":"`)
	f.Add("\x00\xff\\\u2028__LOG_LEVEL__")
	f.Fuzz(func(t *testing.T, level string) {
		with, err := render(template, values{"LOG_LEVEL": text(level)}, "linux")
		if err != nil {
			t.Fatalf("%q: %v", level, err)
		}
		without, err := render(template, values{"LOG_LEVEL": text("")}, "linux")
		if err != nil || shape(t, with) != shape(t, without) {
			t.Fatalf("%q: %s, %v", level, with, err)
		}
	})
}

// shape is a document whose texts are all the same.
func shape(t *testing.T, text []byte) string {
	t.Helper()
	var document any
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	var blank func(any) any
	blank = func(value any) any {
		switch v := value.(type) {
		case string:
			return ""
		case []any:
			for i := range v {
				v[i] = blank(v[i])
			}
		case map[string]any:
			for key := range v {
				v[key] = blank(v[key])
			}
		}
		return value
	}
	out, err := json.Marshal(blank(document))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
