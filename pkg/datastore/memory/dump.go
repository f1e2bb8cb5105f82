package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
)

// line is one key of a dump: a line of JSON. Text is there instead of Value if
// the stored value is no JSON.
type line struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value,omitempty"`
	Text  *string         `json:"text,omitempty"`
}

// Dump writes all keys and values, one JSON object per line, in key order.
func (s *Store) Dump() string {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	for _, path := range s.data.paths {
		value := s.data.records[path].Value
		l := line{Key: path, Value: value}
		if !json.Valid(value) {
			text := string(value)
			l = line{Key: path, Text: &text}
		}
		_ = encoder.Encode(l) // a string and valid JSON always encode, to a buffer always
	}
	return out.String()
}

// Load adds the keys and values of a dump.
func (s *Store) Load(dump io.Reader) error {
	decoder := json.NewDecoder(dump)
	for {
		var l line
		err := decoder.Decode(&l)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading a dump of keys: %w", err)
		}
		value := string(l.Value)
		if l.Text != nil {
			value = *l.Text
		}
		s.Plant(l.Key, value)
	}
}

// Copy returns a store with the same content, which goes its own way from now
// on: for tests that try many continuations of one state. Hooks are not copied.
func (s *Store) Copy() *Store {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	return &Store{options: s.options, calls: &callLog{}, data: &data{
		records: maps.Clone(s.data.records), paths: slices.Clone(s.data.paths), revision: s.data.revision,
	}}
}

// Plant stores a raw value under a raw key, whatever they are.
func (s *Store) Plant(path, value string) {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	s.data.revision++
	s.data.put(path, []byte(value))
}

// Uproot removes a raw key.
func (s *Store) Uproot(path string) {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	s.data.revision++
	s.data.remove(path)
}

// Raw returns the value stored under a key as it is.
func (s *Store) Raw(path string) (value string, ok bool) {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	record, ok := s.data.records[path]
	return string(record.Value), ok
}

// Paths lists all keys in order.
func (s *Store) Paths() []string {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	return append([]string(nil), s.data.paths...)
}
