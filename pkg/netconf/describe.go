package netconf

import (
	"encoding/json"
	"reflect"
	"strconv"
)

// fitsScalar reports whether encoding/json can store a string, boolean or
// number in a variable of the wanted type.
func fitsScalar(value any, want reflect.Type) bool {
	switch v := value.(type) {
	case string:
		return want.Kind() == reflect.String
	case bool:
		return want.Kind() == reflect.Bool
	case json.Number:
		switch want.Kind() {
		case reflect.Int:
			_, err := strconv.ParseInt(v.String(), 10, want.Bits())
			return err == nil
		case reflect.Uint:
			_, err := strconv.ParseUint(v.String(), 10, want.Bits())
			return err == nil
		}
	}
	return false
}

// wanted describes a type to the author of a configuration.
func wanted(want reflect.Type) string {
	switch want.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	case reflect.Uint:
		return "a whole number, not negative"
	case reflect.Slice:
		if want.Elem().Kind() == reflect.String {
			return "a list of strings"
		}
		return "a list of objects"
	default:
		return "an object"
	}
}

// found describes a value. It shows numbers and booleans, but no text: that
// may hold a credential.
func found(value any) string {
	switch v := value.(type) {
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return v.String()
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	default:
		return kindOf(value)
	}
}

// kindOf names the kind of a value and nothing else.
func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	default:
		return "a number"
	}
}

// remedy says how to write the value, where that is plain.
func remedy(value any, want reflect.Type) string {
	text, isText := value.(string)
	switch {
	case isText && want.Kind() == reflect.Slice:
		return ": put it in [ ]"
	case isText && want.Kind() == reflect.Bool && (text == "true" || text == "false"),
		isText && (want.Kind() == reflect.Int || want.Kind() == reflect.Uint) && fitsScalar(json.Number(text), want):
		return ": remove the quotes"
	case !isText && want.Kind() == reflect.String && (kindOf(value) == "a boolean" || kindOf(value) == "a number"):
		return ": put it in quotes"
	}
	return ""
}
