package cloud

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	machine "github.com/mnicloud/mnicloud/distro/cloud"
	"github.com/mnicloud/mnicloud/distro/instance"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// Connect makes a client with every right, and finds the instance on the machine. The certificates are those of the last start.
func (c Cloud) Connect() (client.WithWatch, instance.Instance, error) {
	inst, ok, err := machine.Registry().Find(c.Instance)
	if err != nil || !ok {
		return nil, inst, fmt.Errorf("instance %s: found %t: %w", c.Instance, ok, err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", inst.AdminKubeconfig())
	if err != nil {
		return nil, inst, err
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(
		clientgoscheme.AddToScheme(scheme), netv1.AddToScheme(scheme), vpcv1.AddToScheme(scheme), ctrv1.AddToScheme(scheme),
	); err != nil {
		return nil, inst, err
	}
	kube, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	return kube, inst, err
}
