package cli

import (
	"sync"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/term"

	"github.com/mnicloud/mnicloud/cli/account"
)

// connection is how the commands reach the cloud: it chooses the kubeconfig and makes the clients, at most one of each,
// when a command first needs them. It is what kubectl's libraries take for their client configuration.
type connection struct {
	streams   genericiooptions.IOStreams
	version   string
	userAgent string
	machine   folders
	// watched tells whether people look at standard error.
	watched bool

	// flags holds --instance and --kubeconfig to see whether they were given.
	flags      *cobra.Command
	kubeconfig string
	context    string
	namespace  string
	tenant     string
	instance   string
	profile    string
	// session is how the user is logged in, where that is how the cloud is reached; nil otherwise. The loader sets it.
	session *session
	// entering says that a gateway is spoken to without a session.
	entering bool

	loader    func() (clientcmd.ClientConfig, error)
	discovery func() (discovery.CachedDiscoveryInterface, error)
	mapper    func() (meta.RESTMapper, error)
}

var _ genericclioptions.RESTClientGetter = &connection{}

// tenantsFlags are the root's flags that only tenants' commands heed.
var tenantsFlags = []string{"kubeconfig", "context", "namespace", "profile"}

// newConnection adds the flags that choose a cloud and a namespace to the root command.
func newConnection(root *cobra.Command, version string, machine folders, streams genericiooptions.IOStreams) *connection {
	c := &connection{streams: streams, version: version, userAgent: "mni/" + version, machine: machine, watched: term.IsTerminal(streams.ErrOut), flags: root}
	flags := root.PersistentFlags()
	flags.StringVar(&c.instance, "instance", defaultInstance, "the cloud on this machine to use (environment: MNI_INSTANCE)")
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file of the cloud to use (environment: KUBECONFIG)")
	flags.StringVar(&c.context, "context", "", "context of the kubeconfig to use")
	flags.StringVarP(&c.namespace, "namespace", "n", "", "namespace to work in; who is logged in has a tenant's name for one")
	flags.StringVar(&c.profile, "profile", account.DefaultProfile, "name of the login to use (environment: MNI_PROFILE)")
	c.loader = sync.OnceValues(c.newLoader)
	c.discovery = sync.OnceValues(c.newDiscovery)
	c.mapper = sync.OnceValues(c.newMapper)
	return c
}

// factory gives kubectl's libraries what they need.
func (c *connection) factory() cmdutil.Factory { return cmdutil.NewFactory(c) }

// ToRawKubeConfigLoader implements genericclioptions.RESTClientGetter.
func (c *connection) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	loader, err := c.loader()
	if err != nil {
		return failedConfig{err}
	}
	return loader
}

// silenceLibraries keeps the libraries from logging what they also return as an error; people get the error. Their logger is
// the process's, and commands make several clients at once.
var silenceLibraries = sync.OnceFunc(func() { klog.SetLogger(logr.Discard()) })

// ToRESTConfig implements genericclioptions.RESTClientGetter.
func (c *connection) ToRESTConfig() (*rest.Config, error) {
	silenceLibraries()
	config, err := c.ToRawKubeConfigLoader().ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errNoCloud
	}
	if err != nil {
		return nil, err
	}
	if c.session != nil {
		config.Wrap(c.session.source.Wrap)
	}
	config.UserAgent = c.userAgent
	config.QPS, config.Burst = 50, 300
	config.WarningHandler = rest.NewWarningWriter(c.streams.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	return config, nil
}

// ToDiscoveryClient implements genericclioptions.RESTClientGetter.
func (c *connection) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return c.discovery()
}

// ToRESTMapper implements genericclioptions.RESTClientGetter.
func (c *connection) ToRESTMapper() (meta.RESTMapper, error) { return c.mapper() }

// newDiscovery caches in memory only: the kinds of a cloud change with its services, and one request tells them all.
func (c *connection) newDiscovery() (discovery.CachedDiscoveryInterface, error) {
	config, err := c.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return tenantsFirst{memory.NewMemCacheClient(client)}, nil
}

func (c *connection) newMapper() (meta.RESTMapper, error) {
	discovered, err := c.discovery()
	if err != nil {
		return nil, err
	}
	return restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(discovered), discovered, nil), nil
}

// failedConfig stands for a kubeconfig that could not be chosen.
type failedConfig struct{ err error }

// RawConfig implements clientcmd.ClientConfig.
func (f failedConfig) RawConfig() (clientcmdapi.Config, error) { return clientcmdapi.Config{}, f.err }

// ClientConfig implements clientcmd.ClientConfig.
func (f failedConfig) ClientConfig() (*rest.Config, error) { return nil, f.err }

// Namespace implements clientcmd.ClientConfig.
func (f failedConfig) Namespace() (namespace string, given bool, err error) { return "", false, f.err }

// ConfigAccess implements clientcmd.ClientConfig.
func (f failedConfig) ConfigAccess() clientcmd.ConfigAccess { return clientcmd.NewDefaultPathOptions() }
