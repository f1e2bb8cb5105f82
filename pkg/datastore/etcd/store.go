package etcd

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"calico-cni/pkg/datastore"
)

const (
	dialTimeout      = 10 * time.Second
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
	requestTimeout   = 15 * time.Second
	// maxOperations is what a server with default settings takes in one
	// transaction.
	maxOperations = 128
)

// Store is a datastore in an etcd cluster.
type Store struct {
	client    *clientv3.Client
	kv        clientv3.KV
	login     login
	endpoints []string
	// certificateEnds is when the client's certificate ends; zero: it has none.
	certificateEnds time.Time
}

var _ datastore.Store = (*Store)(nil)

// Open prepares a connection. Nothing is sent before the first call, except
// that endpoints are looked up in DNS if the options ask for it.
func Open(ctx context.Context, options Options) (*Store, error) {
	endpoints, err := options.endpoints(ctx, net.DefaultResolver.LookupSRV)
	switch {
	case err != nil && options.DiscoverySRV != "":
		return nil, unavailable(datastore.Unreachable, "looking up the etcd servers of "+options.DiscoverySRV, err)
	case err != nil:
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	var tlsConfig *tls.Config
	if allSecure(endpoints) {
		if tlsConfig, err = options.tlsConfig(); err != nil {
			return nil, unavailable(datastore.Refused, "connecting to etcd at "+strings.Join(endpoints, ", "), err)
		}
	}
	client, err := clientv3.New(clientConfig(endpoints, tlsConfig))
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd at %s: %w", strings.Join(endpoints, ", "), err)
	}
	connection := client.ActiveConnection()
	return &Store{
		client: client,
		// The client's own KV waits for a connection until the deadline, even
		// where all servers refuse it. This one fails as soon as they do.
		kv:        clientv3.NewKVFromKVClient(pb.NewKVClient(connection), nil),
		login:     login{auth: pb.NewAuthClient(connection), username: options.Username, password: options.Password},
		endpoints: endpoints,

		certificateEnds: certificateEnd(tlsConfig),
	}, nil
}

// CertificateEnds is when the client's certificate ends; zero if the client
// has none.
func (s *Store) CertificateEnds() time.Time { return s.certificateEnds }

func clientConfig(endpoints []string, tlsConfig *tls.Config) clientv3.Config {
	options := []grpc.DialOption{
		grpc.WithStatsHandler(sentRecorder{}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: dialTimeout,
		}),
	}
	if tlsConfig != nil {
		options = append(options, grpc.WithTransportCredentials(alertCredentials{credentials.NewTLS(tlsConfig)}))
	}
	return clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepaliveTime,
		DialKeepAliveTimeout: keepaliveTimeout,
		MaxUnaryRetries:      1, // what may be repeated is decided in request.go
		Logger:               zap.NewNop(),
		DialOptions:          options,
	}
}

// Transactional implements datastore.Store: it is.
func (s *Store) Transactional() bool { return true }

// Close implements datastore.Store.
func (s *Store) Close() error {
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("closing the connection to etcd: %w", err)
	}
	return nil
}
