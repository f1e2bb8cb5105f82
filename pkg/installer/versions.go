package installer

import (
	"context"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
)

// answerTime bounds asking a plugin for its versions.
const answerTime = 20 * time.Second

// askVersions asks each plugin that may be found in the folders which versions
// of CNI it knows. One that does not say is left out, with a warning.
func askVersions(ctx context.Context, plugins, folders []string) (known map[string][]string, warnings []string) {
	known = map[string][]string{}
	for _, plugin := range plugins {
		path, err := invoke.FindInPath(plugin, folders)
		if err != nil {
			warnings = append(warnings, "plugin "+plugin+": "+err.Error())
			continue
		}
		versions, err := askVersion(ctx, path)
		if err != nil {
			warnings = append(warnings, "plugin "+plugin+": asking for its versions: "+err.Error())
			continue
		}
		known[plugin] = versions
	}
	return known, warnings
}

func askVersion(ctx context.Context, path string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	info, err := invoke.GetVersionInfo(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	return info.SupportedVersions(), nil
}
