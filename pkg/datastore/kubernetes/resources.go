package kubernetes

import (
	"fmt"
	"net/url"
	"strings"

	"calico-cni/pkg/model"
)

// resource is a kind of objects as the API server serves it.
type resource struct {
	// root is the path of its group and version, with the namespace if it is
	// of one; plural its name in paths.
	root   string
	plural string
	// group and kind stand in documents; group is empty for Kubernetes' own.
	group model.APIGroup
	kind  string
	// fields narrows a list by what the server indexes; empty: not.
	fields string
}

// String is the name by which roles know it.
func (r resource) String() string {
	if r.group == "" {
		return r.plural
	}
	group, _, _ := strings.Cut(string(r.group), "/")
	return r.plural + "." + group
}

func (r resource) path() string { return r.root + "/" + r.plural }

func (r resource) object(name string) string { return r.path() + "/" + url.PathEscape(name) }

// custom is a resource of Calico's.
func custom(group model.APIGroup, kind, plural string) resource {
	return resource{root: "/apis/" + string(group), plural: plural, group: group, kind: kind}
}

func blocks(group model.APIGroup) resource { return custom(group, "IPAMBlock", "ipamblocks") }

func affinities(group model.APIGroup) resource {
	return custom(group, "BlockAffinity", "blockaffinities")
}

func handles(group model.APIGroup) resource { return custom(group, "IPAMHandle", "ipamhandles") }

// configs: the singleton has another name in each group.
func configs(group model.APIGroup) resource {
	if group == model.GroupV3 {
		return custom(group, "IPAMConfiguration", "ipamconfigurations")
	}
	return custom(group, "IPAMConfig", "ipamconfigs")
}

const configName = "default"

// core is a resource of Kubernetes itself.
func core(kind model.Kind, namespace string) resource {
	r := resource{root: "/api/v1", plural: kind.Plural(), kind: string(kind)}
	if namespace != "" {
		r.root += "/namespaces/" + url.PathEscape(namespace)
	}
	return r
}

// kubeVirt is a resource of KubeVirt's.
func kubeVirt(kind model.Kind, namespace string) resource {
	r := custom(model.KubeVirtVersion, string(kind), kind.Plural())
	r.root += "/namespaces/" + url.PathEscape(namespace)
	return r
}

// pods is the resource that endpoints are a view of.
func pods(namespace string) resource { return core(model.KindPod, namespace) }

// resourceOf returns where an object is kept, and its name there. Endpoints
// are found by their pod and have no name of their own.
func resourceOf(group model.APIGroup, key model.Key) (resource, string, error) {
	switch k := key.(type) {
	case model.BlockKey:
		return blocks(group), model.CIDRName(k.CIDR), nil
	case model.AffinityKey:
		return affinities(group), k.ObjectName(), nil
	case model.HandleKey:
		return handles(group), k.ObjectName(), nil
	case model.IPAMConfigKey:
		return configs(group), configName, nil
	case model.ResourceKey:
		return kindOf(group, k)
	}
	return resource{}, "", fmt.Errorf("%s: a Kubernetes datastore has no such kind of object", key)
}

func kindOf(group model.APIGroup, key model.ResourceKey) (resource, string, error) {
	switch key.Kind {
	case model.KindIPPool, model.KindIPReservation, model.KindClusterInformation:
		return custom(group, string(key.Kind), key.Kind.Plural()), key.Name, nil
	case model.KindNode, model.KindNamespace, model.KindPod:
		return core(key.Kind, key.Namespace), key.Name, nil
	case model.KindVirtualMachine, model.KindVirtualMachineInstance:
		return kubeVirt(key.Kind, key.Namespace), key.Name, nil
	case model.KindWorkloadEndpoint:
		pod, err := podOf(key)
		return pods(key.Namespace), pod, err
	}
	return resource{}, "", fmt.Errorf("%s: a Kubernetes datastore has no such kind of object", key)
}
