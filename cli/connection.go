package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
)

const (
	// stateDir holds a folder for each instance of the cloud that this machine runs.
	stateDir = "/var/lib/mni"
	// ownerKubeconfig is the file in an instance's folder with which the machine's owner uses the cloud.
	ownerKubeconfig = "admin.kubeconfig"
	// defaultInstance is the instance meant when none is named.
	defaultInstance = "default"
	// instanceVariable is the environment variable that names the instance when the flag does not.
	instanceVariable = "MNI_INSTANCE"
)

var errNoCloud = errors.New("no cloud found: run `mni up`, or give a kubeconfig with --kubeconfig")

// connection is how the commands reach the cloud: it chooses the kubeconfig and makes the clients, at most one of each,
// when a command first needs them. It is what kubectl's libraries take for their client configuration.
type connection struct {
	streams   genericiooptions.IOStreams
	version   string
	userAgent string
	stateDir  string
	// watched tells whether people look at standard error.
	watched bool

	// flags holds --instance and --kubeconfig to see whether they were given.
	flags      *cobra.Command
	kubeconfig string
	context    string
	namespace  string
	instance   string

	loader    func() (clientcmd.ClientConfig, error)
	discovery func() (discovery.CachedDiscoveryInterface, error)
	mapper    func() (meta.RESTMapper, error)
}

var _ genericclioptions.RESTClientGetter = &connection{}

// tenantsFlags are the root's flags that only tenants' commands heed.
var tenantsFlags = []string{"kubeconfig", "context", "namespace"}

// newConnection adds the flags that choose a cloud and a namespace to the root command.
func newConnection(root *cobra.Command, version, stateDir string, streams genericiooptions.IOStreams) *connection {
	c := &connection{streams: streams, version: version, userAgent: "mni/" + version, stateDir: stateDir, watched: term.IsTerminal(streams.ErrOut), flags: root}
	flags := root.PersistentFlags()
	flags.StringVar(&c.instance, "instance", defaultInstance, "the cloud on this machine to use (environment: MNI_INSTANCE)")
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file of the cloud to use (environment: KUBECONFIG)")
	flags.StringVar(&c.context, "context", "", "context of the kubeconfig to use")
	flags.StringVarP(&c.namespace, "namespace", "n", "", "namespace to work in")
	c.loader = sync.OnceValues(c.newLoader)
	c.discovery = sync.OnceValues(c.newDiscovery)
	c.mapper = sync.OnceValues(c.newMapper)
	return c
}

// factory gives kubectl's libraries what they need.
func (c *connection) factory() cmdutil.Factory { return cmdutil.NewFactory(c) }

// instanceName is the instance that the flag or the environment names, and whether either does.
func (c *connection) instanceName() (name string, named bool) {
	if c.flags.PersistentFlags().Changed("instance") {
		return c.instance, true
	}
	if name := os.Getenv(instanceVariable); name != "" {
		return name, true
	}
	return defaultInstance, false
}

// kubeconfigFile chooses the kubeconfig: the flag, the instance named by flag, KUBECONFIG (then file is empty: it may list
// several), the instance of the environment or the default one, the user's own.
func (c *connection) kubeconfigFile() (file string, err error) {
	if c.kubeconfig != "" {
		if c.flags.PersistentFlags().Changed("instance") {
			return "", &usageError{errors.New("--kubeconfig and --instance both choose a cloud: give one of them")}
		}
		return c.kubeconfig, readable(c.kubeconfig)
	}
	instance, named := c.instanceName()
	if !filepath.IsLocal(instance) || filepath.Base(instance) != instance {
		return "", &usageError{fmt.Errorf("--instance %q is not the name of an instance", instance)}
	}
	owners := filepath.Join(c.stateDir, instance, ownerKubeconfig)
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" && !c.flags.PersistentFlags().Changed("instance") {
		return "", nil
	}
	ownersErr := readable(owners)
	switch {
	case ownersErr == nil:
		return owners, nil
	case named && errors.Is(ownersErr, fs.ErrNotExist):
		return "", fmt.Errorf("no cloud named %q on this machine (%s is missing): run `mni up --instance %s`, or give a kubeconfig with --kubeconfig", instance, owners, instance)
	case named:
		return "", ownersErr
	}
	if users := clientcmd.RecommendedHomeFile; readable(users) == nil {
		return users, nil
	}
	if errors.Is(ownersErr, fs.ErrNotExist) {
		return "", errNoCloud
	}
	return "", ownersErr
}

// readable says why a kubeconfig cannot be read.
func readable(file string) error {
	f, err := os.Open(file)
	if err == nil {
		return f.Close()
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("you may not read %s: run as the machine's owner (root), or give a kubeconfig with --kubeconfig: %w", file, fs.ErrPermission)
	}
	return fmt.Errorf("kubeconfig: %w", err)
}

func (c *connection) newLoader() (clientcmd.ClientConfig, error) {
	file, err := c.kubeconfigFile()
	if err != nil {
		return nil, err
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	overrides := &clientcmd.ConfigOverrides{CurrentContext: c.context}
	overrides.Context.Namespace = c.namespace
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides), nil
}

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
