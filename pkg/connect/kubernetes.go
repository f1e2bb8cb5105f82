package connect

import (
	"context"
	"sync"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/kubernetes"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
	"calico-cni/pkg/workload"
)

// Reader is the part of a datastore that answers queries.
type Reader interface {
	Read(ctx context.Context, queries ...datastore.Query) ([]datastore.Answer, error)
}

func openKubernetes(ctx context.Context, settings netconf.KubernetesSettings, getenv func(string) string) (Connection, error) {
	prefix, err := workload.InterfacePrefix(getenv("FELIX_INTERFACEPREFIX"))
	if err != nil {
		return Connection{}, err
	}
	options := optionsOf(settings, getenv)
	options.InterfacePrefix = prefix
	store, err := kubernetes.Open(ctx, options)
	if err != nil {
		return Connection{}, err
	}
	connection := Connection{Store: store, Version: store.Version, LabelAffinities: store.LabelAffinities}
	if !settings.RateGiven {
		connection.Unlimit = store.Unlimit
	}
	connection.Credentials, connection.CredentialsEnd = store.Credentials()
	return connection, nil
}

func optionsOf(settings netconf.KubernetesSettings, getenv func(string) string) kubernetes.Options {
	return kubernetes.Options{
		Kubeconfig: settings.Kubeconfig, Context: settings.Context, Server: settings.APIRoot, Token: string(settings.Token),
		CertFile: settings.CertFile, KeyFile: settings.KeyFile, CAFile: settings.CAFile,
		InsecureSkipTLSVerify: settings.InsecureSkipTLSVerify,
		QPS:                   settings.QPS, Burst: settings.Burst,
		ServiceAccountDir: settings.ServiceAccountDir,
		ServiceHost:       getenv("KUBERNETES_SERVICE_HOST"), ServicePort: getenv("KUBERNETES_SERVICE_PORT"),
		Group: kubernetes.GroupNamed(settings.APIGroup),
	}
}

// withAPI adds the way to the API server. A Kubernetes datastore is it, unless
// the policy section names another server or other credentials.
func withAPI(connection Connection, conf *netconf.Config, choice netconf.DatastoreChoice, getenv func(string) string) Connection {
	settings, err := netconf.PolicyClient(conf, getenv, fileExists)
	if choice.Kind == netconf.KubernetesAPI && err == nil && settings == choice.Kubernetes {
		connection.API = connection.Store
		return connection
	}
	api := &lazy{open: func(ctx context.Context) (apiServer, error) {
		if err != nil {
			return nil, err
		}
		options := optionsOf(settings, getenv)
		// None of Calico's objects is asked for, so no group has to be found.
		options.Group = model.GroupV1
		store, err := kubernetes.Open(ctx, options)
		return store, Explain(err)
	}}
	connection.API, connection.Version = api, api.version
	connection.Store = &joint{Store: connection.Store, api: api}
	return connection
}

// lazy connects when it is first asked: many configurations name an API server
// that most verbs do not need.
type lazy struct {
	open func(ctx context.Context) (apiServer, error)

	mu    sync.Mutex
	store apiServer
}

// apiServer is what is needed of an API server beside the datastore.
type apiServer interface {
	Reader
	Version(ctx context.Context) error
	Close() error
}

// Read implements Reader.
func (l *lazy) Read(ctx context.Context, queries ...datastore.Query) ([]datastore.Answer, error) {
	store, err := l.connected(ctx)
	if err != nil {
		return nil, err
	}
	answers, err := store.Read(ctx, queries...)
	return answers, Explain(err)
}

func (l *lazy) version(ctx context.Context) error {
	store, err := l.connected(ctx)
	if err != nil {
		return err
	}
	return Explain(store.Version(ctx))
}

func (l *lazy) connected(ctx context.Context) (apiServer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.store == nil {
		store, err := l.open(ctx)
		if err != nil {
			return nil, err
		}
		l.store = store
	}
	return l.store, nil
}

func (l *lazy) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.store == nil {
		return nil
	}
	return l.store.Close()
}

// joint is a datastore beside an API server: a batch is answered by both at
// once.
type joint struct {
	datastore.Store
	api *lazy
}

// Read implements datastore.Store.
func (j *joint) Read(ctx context.Context, queries ...datastore.Query) ([]datastore.Answer, error) {
	var ofStore, ofAPI []datastore.Query
	for _, query := range queries {
		if isKubernetes(query) {
			ofAPI = append(ofAPI, query)
		} else {
			ofStore = append(ofStore, query)
		}
	}
	if len(ofAPI) == 0 {
		return j.Store.Read(ctx, queries...)
	}
	var fromAPI []datastore.Answer
	var apiErr error
	var asking sync.WaitGroup
	asking.Go(func() { fromAPI, apiErr = j.api.Read(ctx, ofAPI...) })
	fromStore, err := j.Store.Read(ctx, ofStore...)
	asking.Wait()
	if err == nil {
		err = apiErr
	}
	if err != nil {
		return nil, err
	}
	return merge(queries, fromStore, fromAPI), nil
}

// merge puts the answers of both into the order of the queries.
func merge(queries []datastore.Query, fromStore, fromAPI []datastore.Answer) []datastore.Answer {
	answers := make([]datastore.Answer, len(queries))
	for i, query := range queries {
		from := &fromStore
		if isKubernetes(query) {
			from = &fromAPI
		}
		answers[i], *from = (*from)[0], (*from)[1:]
	}
	return answers
}

// isKubernetes reports whether only an API server can answer.
func isKubernetes(query datastore.Query) bool {
	get, isGet := query.(datastore.Get)
	if !isGet {
		return false
	}
	key, isResource := get.Key.(model.ResourceKey)
	if !isResource {
		return false
	}
	switch key.Kind {
	case model.KindNamespace, model.KindPod, model.KindVirtualMachine, model.KindVirtualMachineInstance:
		return true
	}
	return false
}

// Close implements datastore.Store.
func (j *joint) Close() error {
	err := j.Store.Close()
	if apiErr := j.api.close(); err == nil {
		err = apiErr
	}
	return err
}
