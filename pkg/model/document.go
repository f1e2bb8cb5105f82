package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strings"
)

// Unknown holds the members of a JSON object that its Go type has no field
// for. They are written back as they were read.
type Unknown map[string]json.RawMessage

// decodeKeeping fills known, a pointer to a struct, from a JSON object and
// returns the members it has no field for.
func decodeKeeping(data []byte, known any) (Unknown, error) {
	if decodeExactly(data, known) {
		return nil, nil
	}
	if err := json.Unmarshal(data, known); err != nil {
		return nil, err
	}
	var members Unknown
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	// Decoding takes names in any case for a field's; so did it here.
	for _, name := range fieldNames(reflect.TypeOf(known).Elem()) {
		for member := range members {
			if strings.EqualFold(member, name) {
				delete(members, member)
			}
		}
	}
	if len(members) == 0 {
		return nil, nil
	}
	return members, nil
}

// decodeExactly fills known and reports whether that was all there is. It saves
// most documents a second pass.
func decodeExactly(data []byte, known any) bool {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if decoder.Decode(known) != nil {
		return false
	}
	return len(bytes.TrimSpace(data[decoder.InputOffset():])) == 0
}

// encodeKeeping writes known followed by the unknown members in name order.
func encodeKeeping(known any, unknown Unknown) ([]byte, error) {
	body, err := json.Marshal(known)
	if err != nil || len(unknown) == 0 {
		return body, err
	}
	names := make([]string, 0, len(unknown))
	for name := range unknown {
		names = append(names, name)
	}
	sort.Strings(names)
	out := strings.Builder{}
	out.Write(body[:len(body)-1])
	for i, name := range names {
		if i > 0 || len(body) > len("{}") {
			out.WriteByte(',')
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, fmt.Errorf("encoding a member name: %w", err)
		}
		out.Write(quoted)
		out.WriteByte(':')
		out.Write(unknown[name])
	}
	out.WriteByte('}')
	return []byte(out.String()), nil
}

func fieldNames(structure reflect.Type) []string {
	names := make([]string, 0, structure.NumField())
	for i := range structure.NumField() {
		name, _, _ := strings.Cut(structure.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}
