package kubernetes

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// chosen is the cluster and the user of one context, and the file that named
// the user.
type chosen struct {
	cluster *api.Cluster
	user    *api.AuthInfo
	file    string
	// clusterName and userName are for messages.
	clusterName, userName string
}

// readKubeconfig reads the files of a list and picks a context. Of several
// files those that do not exist are passed over; the first to name a thing
// wins.
func readKubeconfig(list, context string) (chosen, error) {
	paths := filepath.SplitList(list)
	merged := api.NewConfig()
	found := 0
	for _, path := range paths {
		config, err := parseKubeconfig(path)
		if errors.Is(err, fs.ErrNotExist) && len(paths) > 1 {
			continue
		}
		if err != nil {
			return chosen{}, err
		}
		merge(merged, config)
		found++
	}
	if found == 0 {
		return chosen{}, fmt.Errorf("none of the kubeconfig files %s exists", list)
	}
	return choose(merged, list, context)
}

// parseKubeconfig does not repeat what the parser says: it quotes the text.
func parseKubeconfig(path string) (*api.Config, error) {
	config, err := clientcmd.LoadFromFile(path)
	var pathErr *fs.PathError
	var base64Err base64.CorruptInputError
	switch {
	case errors.As(err, &pathErr):
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	case errors.As(err, &base64Err):
		return nil, fmt.Errorf("%s is not a kubeconfig: a certificate or key in it is not in base64", describeFile(path))
	case err != nil:
		return nil, fmt.Errorf("%s is not a kubeconfig: it does not parse; perhaps it is being written", describeFile(path))
	}
	// Paths in a kubeconfig are relative to it.
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return config, nil
}

// merge adds what is not named yet. clientcmd merges only files that it reads
// itself, and then an error no longer tells which of them is at fault.
func merge(merged, config *api.Config) {
	if merged.CurrentContext == "" {
		merged.CurrentContext = config.CurrentContext
	}
	mergeNamed(merged.Clusters, config.Clusters)
	mergeNamed(merged.AuthInfos, config.AuthInfos)
	mergeNamed(merged.Contexts, config.Contexts)
}

func mergeNamed[T any](merged, more map[string]*T) {
	for name, entry := range more {
		if merged[name] == nil {
			merged[name] = entry
		}
	}
}

func choose(config *api.Config, list, name string) (chosen, error) {
	if name == "" {
		name = config.CurrentContext
	}
	if name == "" {
		return chosen{}, fmt.Errorf("kubeconfig %s has no current-context", list)
	}
	context := config.Contexts[name]
	if context == nil {
		return chosen{}, fmt.Errorf("kubeconfig %s has no context %q", list, name)
	}
	cluster := config.Clusters[context.Cluster]
	if cluster == nil || cluster.Server == "" {
		return chosen{}, fmt.Errorf("kubeconfig %s: context %q: no server for cluster %q", list, name, context.Cluster)
	}
	user := config.AuthInfos[context.AuthInfo]
	switch {
	case user == nil && context.AuthInfo != "":
		return chosen{}, fmt.Errorf("kubeconfig %s: context %q: no user %q", list, name, context.AuthInfo)
	case user == nil:
		user = &api.AuthInfo{LocationOfOrigin: context.LocationOfOrigin}
	case user.Exec != nil || user.AuthProvider != nil:
		return chosen{}, fmt.Errorf("%s: user %q gets its credentials from a program: write a token, a token file or a client certificate instead", describeFile(user.LocationOfOrigin), context.AuthInfo)
	}
	return chosen{
		cluster: cluster, user: user, file: user.LocationOfOrigin, clusterName: context.Cluster, userName: context.AuthInfo,
	}, nil
}
