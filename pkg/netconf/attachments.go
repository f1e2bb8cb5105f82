package netconf

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"calico-cni/pkg/cnierr"
)

// ValidAttachments is what GC must not touch (network plugin contract 6.6): the
// union of both keys. present is false if the runtime sent neither; then GC
// does nothing. Present and empty means that nothing is valid.
func (c *Config) ValidAttachments() (valid []types.GCAttachment, present bool, err error) {
	keys := []struct {
		path string
		raw  json.RawMessage
	}{
		{"cni.dev/valid-attachments", c.GCValidAttachments},
		{"cni.dev/attachments", c.GCAttachments},
	}
	for _, key := range keys {
		if key.raw == nil {
			continue
		}
		present = true
		listed, err := parseAttachments(key.path, key.raw)
		if err != nil {
			return nil, true, err
		}
		for _, attachment := range listed {
			if !slices.Contains(valid, attachment) {
				valid = append(valid, attachment)
			}
		}
	}
	return valid, present, nil
}

// parseAttachments takes null for an empty list: Go runtimes write it so.
func parseAttachments(path string, raw json.RawMessage) ([]types.GCAttachment, error) {
	entries, err := listOf(path, "a list of {containerID, ifname}", raw)
	if err != nil {
		return nil, err
	}
	attachments := make([]types.GCAttachment, 0, len(entries))
	for i, entry := range entries {
		at := fmt.Sprintf("%s[%d]", path, i)
		object, isObject := entry.(map[string]any)
		if !isObject {
			return nil, wantAt(at, "an object {containerID, ifname}", entry)
		}
		containerID, isText := member(object, "containerID").(string)
		if !isText || containerID == "" {
			return nil, wantAt(at+".containerID", "the id of a container", member(object, "containerID"))
		}
		ifName, isText := member(object, "ifname").(string)
		if !isText && member(object, "ifname") != nil {
			return nil, wantAt(at+".ifname", "a string", member(object, "ifname"))
		}
		attachments = append(attachments, types.GCAttachment{ContainerID: containerID, IfName: ifName})
	}
	return attachments, nil
}

// listOf decodes a raw member that must be a list; absent and null are empty.
func listOf(path, want string, raw json.RawMessage) ([]any, error) {
	if raw == nil {
		return nil, nil
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return nil, cnierr.New(cnierr.InvalidConfiguration, "network configuration key %s: %w", path, err)
	}
	list, isList := value.([]any)
	if !isList && value != nil {
		return nil, wantAt(path, want, value)
	}
	return list, nil
}
