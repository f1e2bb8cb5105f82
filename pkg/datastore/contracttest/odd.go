package contracttest

import (
	"errors"
	"strings"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

func oddDataTests() []test {
	return []test{
		{"Odd/an affinity without value is confirmed", emptyAffinity},
		{"Odd/lists skip what does not parse", listsSkip},
		{"Odd/a Get of what does not parse is an error", getUndecodable},
		{"Odd/a conflict with what does not parse does not tell it", conflictUndecodable},
		{"Odd/affinities of type @", func(f *fixture) {
			key := affinityKey(host, claimed)
			key.Type = "@"
			if f.plant(map[string]string{key.Path(): `{"state":"confirmed"}`}) {
				f.lists(datastore.ListAffinities{Type: "@", Host: host, Family: model.IPv4}, key)
				f.lists(datastore.ListAffinities{Host: host, Family: model.IPv4})
			}
		}},
		{"Odd/lists without a type mean hosts", func(f *fixture) {
			f.create(affinityKey(host, claimed), confirmed())
			f.lists(datastore.ListAffinities{Host: host, Family: model.IPv4}, affinityKey(host, claimed))
		}},
		{"Odd/unknown members survive an update", unknownSurvives},
		{"Odd/endpoints of a name prefix", endpointPrefix},
	}
}

func emptyAffinity(f *fixture) {
	key := affinityKey(host, claimed)
	if !f.plant(map[string]string{key.Path(): ""}) {
		return
	}
	list := datastore.ListAffinities{Type: model.AffinityHost, Host: host, Family: model.IPv4}
	f.lists(list, key)
	value, revision := f.get(key)
	if affinity := value.(*model.Affinity); !affinity.State.Confirmed() {
		f.Errorf("its state is %q", affinity.State)
	}
	f.put(key, confirmed(), revision)
}

func listsSkip(f *fixture) {
	if !f.plant(map[string]string{
		blockKey("10.77.0.64/26").Path():                        `{"cidr":"10.77.0.64/26"`,
		blockKey("10.77.0.128/26").Path():                       ``,
		model.BlockPrefix(model.IPv4) + "10.77.0.192":           `{}`,
		model.BlockPrefix(model.IPv4) + "junk":                  `{}`,
		model.HandlePrefix() + "a/b":                            `{"block":{}}`,
		model.HandleKey{ID: "net.broken"}.Path():                `[]`,
		model.AffinityTypePrefix(model.AffinityHost) + host:     ``, // the legacy host marker
		affinityKey(host, "10.77.1.0/26").Path():                `{"state":7}`,
		model.ResourcePrefix(model.KindIPPool, "") + "broken":   `{"spec":{"cidr":4}}`,
		model.ResourcePrefix(model.KindIPPool, "") + "deep/est": `{}`,
	}) {
		return
	}
	f.createBlocks("10.77.0.0/26")
	f.create(affinityKey(host, "10.77.0.0/26"), confirmed())
	f.lists(datastore.ListBlocks{Family: model.IPv4}, blockKey("10.77.0.0/26"))
	f.lists(datastore.ListHandles{})
	f.lists(datastore.ListResources{Kind: model.KindIPPool})
	for _, host := range []string{host, ""} {
		list := datastore.ListAffinities{Type: model.AffinityHost, Host: host, Family: model.IPv4}
		f.lists(list, affinityKey("worker-b", "10.77.0.0/26"))
	}
}

func getUndecodable(f *fixture) {
	key := blockKey(claimed)
	if !f.plant(map[string]string{key.Path(): `{"cidr":"10.77.3.64/26","allocations":[0]}`}) {
		return
	}
	_, err := f.store.Read(f.ctx, datastore.Get{Key: key})
	if !errors.Is(err, datastore.ErrUnavailable) || !strings.Contains(err.Error(), key.String()) {
		f.Errorf("Read failed with %v, want: unavailable, naming the %s", err, key)
	}
}

func conflictUndecodable(f *fixture) {
	if !f.store.Transactional() || !f.plant(map[string]string{blockKey(claimed).Path(): `{}`}) {
		return
	}
	if conflict := f.fails(datastore.ErrExists, blockKey(claimed), claimSteps()...); conflict.Current != nil {
		f.Errorf("there is %v now, want nothing told", conflict.Current)
	}
	f.absent(claimedHandle)
}

// unknownSurvives reads and writes documents with members of other writers.
func unknownSurvives(f *fixture) {
	documents := map[model.Key]string{
		affinityKey(host, claimed): `{"state":"confirmed","deleted":false,"future":{"n":18446744073709551615}}`,
		claimedHandle:              `{"block":{"10.77.3.64/26":1},"deleted":false,"future":[1,2]}`,
		poolKey("pods"):            `{"kind":"IPPool","metadata":{"name":"pods","ownerReferences":[{"uid":"future"}]},"spec":{"cidr":"10.77.0.0/16","future":true},"status":{"future":1}}`,
	}
	for key, document := range documents {
		if !f.plant(map[string]string{key.Path(): document}) {
			return
		}
		value, revision := f.get(key)
		f.put(key, value, revision)
		found, _ := f.get(key)
		if text := reencode(f, key, found); strings.Count(text, "future") != strings.Count(document, "future") {
			f.Errorf("the %s is now %s, was %s", key, text, document)
		}
	}
}

func endpointPrefix(f *fixture) {
	if !f.plant(map[string]string{}) {
		return // where endpoints are pods, they are not created
	}
	eth0 := endpointKey("shop", "n1-k8s-web-eth0")
	other := endpointKey("shop", "n1-k8s-web--0-eth0")
	elsewhere := endpointKey("shop2", "n1-k8s-web-eth0")
	for _, key := range []model.ResourceKey{eth0, other, elsewhere} {
		f.create(key, newEndpoint(key.Namespace, key.Name))
	}
	list := datastore.ListResources{Kind: model.KindWorkloadEndpoint}
	f.lists(list, other, eth0, elsewhere)
	list.Namespace = "shop"
	f.lists(list, other, eth0)
	list.NamePrefix = "n1-k8s-web-"
	f.lists(list, other, eth0)
	list.NamePrefix = "n1-k8s-web-e"
	f.lists(list, eth0)
}
