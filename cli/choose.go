package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/mnicloud/mnicloud/cli/account"
)

const (
	// stateDir holds a folder for each instance of the cloud that this machine runs.
	stateDir = "/var/lib/mni"
	// runDir holds one for each that is running.
	runDir = "/run/mni"
	// ownerKubeconfig is the file in an instance's folder with which the machine's owner uses the cloud, gatewayKubeconfig the one that
	// says where its users find it.
	ownerKubeconfig   = "admin.kubeconfig"
	gatewayKubeconfig = "gateway.kubeconfig"
	// defaultInstance is the instance meant when none is named.
	defaultInstance = "default"
	// instanceVariable and profileVariable are the environment variables that name the instance and the login when the flags do not.
	instanceVariable = "MNI_INSTANCE"
	profileVariable  = "MNI_PROFILE"
)

// folders are where this machine's instances are; without run it is not known which of them run.
type folders struct{ state, run string }

// running says of an instance on this machine that has state but does not run, how to start it. To dial its address would take long:
// the address is nobody's.
func (f folders) running(instance string) error {
	if f.run == "" {
		return nil
	}
	_, err := os.Stat(filepath.Join(f.run, instance))
	if !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	start := "`mni up`"
	if instance != defaultInstance {
		start = fmt.Sprintf("`mni up --instance %s`", instance)
	}
	return fmt.Errorf("cloud %q is not running: start it with %s", instance, start)
}

var errNoCloud = errors.New("no cloud found: log in with `mni login`, run `mni up`, or give a kubeconfig with --kubeconfig")

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

// profileName is the login that the flag or the environment names, and whether either does.
func (c *connection) profileName() (name string, named bool) {
	if c.given("profile") {
		return c.profile, true
	}
	if name := os.Getenv(profileVariable); name != "" {
		return name, true
	}
	return account.DefaultProfile, false
}

// given tells whether a flag of the root is on the command line.
func (c *connection) given(flag string) bool { return c.flags.PersistentFlags().Changed(flag) }

// way is how a command reaches a cloud: by a login, or else a kubeconfig file. An empty file means those that KUBECONFIG lists.
type way struct{ profile, file string }

// choose chooses the cloud, the first that is named of: --kubeconfig, --profile, --instance, MNI_PROFILE, KUBECONFIG, MNI_INSTANCE;
// then the first that there is of: the user's login, the default instance of this machine, the user's own kubeconfig.
func (c *connection) choose() (way, error) {
	kubeconfig, byInstance, byProfile := c.kubeconfig != "", c.given("instance"), c.given("profile")
	switch {
	case kubeconfig && byInstance, kubeconfig && byProfile, byInstance && byProfile:
		return way{}, usagef("--kubeconfig, --instance and --profile each choose a cloud: give one of them")
	case kubeconfig:
		return way{file: c.kubeconfig}, readable(c.kubeconfig)
	}
	profile, profileNamed := c.profileName()
	_, instanceNamed := c.instanceName()
	switch {
	case byProfile, !byInstance && profileNamed:
		return way{profile: profile}, nil
	case !byInstance && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "":
		return way{}, nil
	case !instanceNamed && c.loggedIn(profile):
		return way{profile: profile}, nil
	}
	file, err := c.kubeconfigFile()
	return way{file: file}, err
}

// loggedIn tells whether a profile has a login.
func (c *connection) loggedIn(profile string) bool {
	store, err := account.UserStore()
	if err != nil {
		return false
	}
	_, err = store.Read(profile)
	return !errors.Is(err, account.ErrNoLogin)
}

// instanceFile is the path of a file in the folder of the instance that is meant.
func (c *connection) instanceFile(name string) (string, error) {
	instance, _ := c.instanceName()
	if !filepath.IsLocal(instance) || filepath.Base(instance) != instance {
		return "", usagef("--instance %q is not the name of an instance", instance)
	}
	return filepath.Join(c.machine.state, instance, name), nil
}

// kubeconfigFile is the kubeconfig of the owner of an instance on this machine or, when none is named nor there, the user's own.
func (c *connection) kubeconfigFile() (file string, err error) {
	owners, err := c.instanceFile(ownerKubeconfig)
	if err != nil {
		return "", err
	}
	instance, named := c.instanceName()
	ownersErr := readable(owners)
	switch {
	case ownersErr == nil:
		return owners, c.machine.running(instance)
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
