// Command mni-kube is the embedded Kubernetes in one binary: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, kubelet, kube-proxy and kubectl.
//
// The component is chosen by the name the binary is called by (a symbolic link) or by its first argument:
//
//	mni-kube kube-apiserver --etcd-servers=...
//	ln -s mni-kube etcd && ./etcd --data-dir ...
//
// Each component keeps its upstream flags and behaviour.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's authentication plugins
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // the JSON log format
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // the version metric
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components maps a component's upstream name to what runs it with os.Args already shifted to its own.
var components = map[string]func() int{
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
	"kube-proxy":              func() int { return cli.Run(proxy.NewProxyCommand()) },
	"kubectl":                 runKubectl,
}

func main() {
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	run, ok := components[name]
	if !ok {
		if len(os.Args) < 2 || components[os.Args[1]] == nil {
			fmt.Fprintf(os.Stderr, "usage: %s COMPONENT [FLAGS]\ncomponents: %s\n", name, strings.Join(names(), ", "))
			os.Exit(2)
		}
		run, os.Args = components[os.Args[1]], os.Args[1:]
	}
	os.Exit(run())
}

func names() []string {
	var out []string
	for name := range components {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints, and exits with kubectl's own code
	}
	return 0
}
