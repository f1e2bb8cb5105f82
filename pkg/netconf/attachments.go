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
	var entries []json.RawMessage
	if err := json.Unmarshal(raw, &entries); err != nil {
		return nil, cnierr.New(cnierr.InvalidConfiguration,
			"network configuration key %s: want a list of {containerID, ifname}: %w", path, err)
	}
	attachments := make([]types.GCAttachment, 0, len(entries))
	for i, entry := range entries {
		at := fmt.Sprintf("%s[%d]", path, i)
		var attachment types.GCAttachment
		if err := json.Unmarshal(entry, &attachment); err != nil {
			return nil, cnierr.New(cnierr.InvalidConfiguration,
				"network configuration key %s: want {containerID, ifname}: %w", at, err)
		}
		if attachment.ContainerID == "" {
			return nil, cnierr.New(cnierr.InvalidConfiguration, "network configuration key %s: containerID is missing", at)
		}
		attachments = append(attachments, attachment)
	}
	return attachments, nil
}
