package model

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/bits"
	"strings"
)

// MetadataAnnotation holds, in the older group, what Calico's own metadata say
// (datastore contract 3.1).
const MetadataAnnotation = "projectcalico.org/metadata"

// ConvertUID turns the UID of a custom resource of the older group into the
// one that Calico's API and tools show, and back (datastore contract 3.2).
// What is no UUID stays as it is.
func ConvertUID(uid string) string {
	raw, err := hex.DecodeString(strings.ReplaceAll(uid, "-", ""))
	if err != nil || len(raw) != 16 {
		return uid
	}
	for i := range raw {
		if i != 6 && i != 8 { // version and variant
			raw[i] = bits.Reverse8(raw[i])
		}
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", raw[0:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
}

// DecodeResource reads a v3 resource from its custom resource: the metadata
// become Calico's own, and what only the server keeps of them is dropped.
func DecodeResource(group APIGroup, key ResourceKey, object []byte) (any, error) {
	members := Unknown{}
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, fmt.Errorf("decoding the %s: %w", key, err)
	}
	metadata := Unknown{}
	if err := json.Unmarshal(members["metadata"], &metadata); err != nil {
		return nil, fmt.Errorf("decoding the %s: metadata: %w", key, err)
	}
	for _, name := range serverOwned {
		delete(metadata, name)
	}
	if group == GroupV1 {
		mergeMetadata(metadata)
		metadata["uid"] = quoted(ConvertUID(text(metadata, "uid")))
	}
	var err error
	if members["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, fmt.Errorf("decoding the %s: metadata: %w", key, err)
	}
	body, err := json.Marshal(members)
	if err != nil {
		return nil, fmt.Errorf("decoding the %s: %w", key, err)
	}
	return Decode(key, body)
}

// serverOwned are the members of metadata that mean nothing outside of the
// server that wrote them.
var serverOwned = []string{"managedFields", "resourceVersion", "generation", "selfLink"}

// mergeMetadata lays Calico's own metadata over the native ones. The deletion
// time is in the native ones only.
func mergeMetadata(metadata Unknown) {
	annotations := texts(metadata["annotations"])
	own := Unknown{}
	if json.Unmarshal([]byte(annotations[MetadataAnnotation]), &own) != nil {
		return // absent, or not ours to understand
	}
	delete(annotations, MetadataAnnotation)
	metadata["annotations"] = merged(annotations, own["annotations"])
	metadata["labels"] = merged(texts(metadata["labels"]), own["labels"])
	for name, value := range own {
		switch name {
		case "annotations", "labels", "name", "uid", "resourceVersion", "deletionTimestamp":
			continue
		}
		if string(value) != "null" {
			metadata[name] = value
		}
	}
}

// texts returns an object of strings; nil if it is something else.
func texts(raw json.RawMessage) map[string]string {
	var values map[string]string
	_ = json.Unmarshal(raw, &values) // absent is empty
	return values
}

func merged(native map[string]string, raw json.RawMessage) json.RawMessage {
	all := map[string]string{}
	for _, values := range []map[string]string{native, texts(raw)} {
		for name, value := range values {
			all[name] = value
		}
	}
	body, _ := json.Marshal(all) // strings always encode
	return body
}
