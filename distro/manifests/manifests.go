// Package manifests installs what an instance's API server must hold: the CustomResourceDefinitions of all rooms, rights,
// namespaces and the cluster's DNS. Everything is applied on the server's side by one field owner, so that applying it
// again changes nothing.
package manifests

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"text/template"

	"golang.org/x/sync/errgroup"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/agent"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	network "github.com/mnicloud/mnicloud/network/config"
	dependency "github.com/mnicloud/mnicloud/platform/dependency/config"
	gateway "github.com/mnicloud/mnicloud/platform/gateway/config"
	auth "github.com/mnicloud/mnicloud/services/auth/config"
	ctr "github.com/mnicloud/mnicloud/services/ctr/config"
	vpc "github.com/mnicloud/mnicloud/services/vpc/config"
)

// FieldOwner is the field manager of everything installed.
const FieldOwner = "mnicloud.jp/installer"

//go:embed *.yaml
var files embed.FS

// generated are the rooms' CustomResourceDefinitions, admission policies, and the roles of their programs.
var generated = []fs.FS{network.CRDs, network.Policies, network.Roles, dependency.Roles, gateway.Roles, auth.CRDs, auth.Policies, auth.Roles, vpc.CRDs, vpc.Roles, ctr.CRDs, ctr.Roles}

// Values are what differs between instances.
type Values struct {
	// ClusterDNS is the address of the DNS Service.
	ClusterDNS string
	// DNSReplicas is how many DNS servers run.
	DNSReplicas int
	// DNSImage is their image.
	DNSImage string
	// External are the default external addresses.
	External External
	// Forward says that names outside the cluster are asked from the nodes' resolvers.
	Forward bool
	// WebhookURL is where mni-cloud serves webhooks, without a slash at the end.
	WebhookURL string
	// CABundle is the authority of its certificate, PEM in base64.
	CABundle string
}

// External is a pool of addresses and the router that is told of it by BGP.
type External struct {
	// Pool is the range.
	Pool string
	// LocalASN is the cloud's autonomous system number.
	LocalASN uint32
	// PeerName names the BGPPeer.
	PeerName    string
	PeerASN     uint32
	PeerAddress string
	// Multihop is how many hops away it may be; 0: it is on the nodes' own network.
	Multihop int
	// BFDIntervalMilliseconds and BFDMultiplier: no BFD when 0.
	BFDIntervalMilliseconds, BFDMultiplier int
}

// Install waits for the API server, applies everything and waits until the defined kinds are served.
func Install(ctx context.Context, config *rest.Config, values Values) error {
	objects, err := Objects(values)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := apiextensions.AddToScheme(scheme); err != nil {
		return err
	}
	if err := agent.AwaitReady(ctx, config); err != nil {
		return fmt.Errorf("wait for the API server: %w", err)
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 100, 100
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	var namespaces, others, external []*unstructured.Unstructured
	var crds []string
	for _, object := range objects {
		switch object.GetKind() {
		case "Namespace":
			namespaces = append(namespaces, object)
			continue
		case "CustomResourceDefinition":
			crds = append(crds, object.GetName())
		}
		if object.GroupVersionKind().Group == netv1.GroupVersion.Group {
			external = append(external, object)
			continue
		}
		others = append(others, object)
	}
	if err := apply(ctx, c, namespaces); err != nil {
		return err
	}
	if err := apply(ctx, c, others); err != nil {
		return err
	}
	if err := established(ctx, c, crds); err != nil {
		return err
	}
	return installExternal(ctx, c, external, values.External.PeerName)
}

// apply applies objects that do not need each other, several at once.
func apply(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(6)
	for _, object := range objects {
		group.Go(func() error {
			err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(FieldOwner), client.ForceOwnership)
			if err != nil {
				return fmt.Errorf("install %s %s: %w", object.GetKind(), object.GetName(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// established watches definitions until all of them are served.
func established(ctx context.Context, c client.WithWatch, names []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	missing := slices.Clone(names)
	seen := func(crd *apiextensions.CustomResourceDefinition) {
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensions.Established && condition.Status == apiextensions.ConditionTrue {
				missing = slices.DeleteFunc(missing, func(name string) bool { return name == crd.Name })
			}
		}
	}
	var list apiextensions.CustomResourceDefinitionList
	if err := c.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		seen(&list.Items[i])
	}
	if len(missing) == 0 {
		return nil
	}
	watch, err := c.Watch(ctx, &list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		return err
	}
	defer watch.Stop()
	for len(missing) > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("definitions are not served yet: %v", missing)
		case event, ok := <-watch.ResultChan():
			if !ok {
				return fmt.Errorf("the watch ended while definitions were not served yet: %v", missing)
			}
			if crd, ok := event.Object.(*apiextensions.CustomResourceDefinition); ok {
				seen(crd)
			}
		}
	}
	return nil
}

// Objects renders everything that is installed, in the order in which it is.
func Objects(values Values) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, room := range generated {
		err := fs.WalkDir(room, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := fs.ReadFile(room, path)
			if err != nil {
				return err
			}
			objects, err := decode(content)
			all = append(all, objects...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	templates, err := template.New("").Option("missingkey=error").ParseFS(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"passwords.yaml": auth.Webhook, "cycles.yaml": dependency.Webhook} {
		if _, err := templates.New(name).Parse(text); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"namespaces.yaml", "rbac.yaml", "coredns.yaml", "external.yaml", "passwords.yaml", "cycles.yaml"} {
		var text bytes.Buffer
		if err := templates.ExecuteTemplate(&text, name, values); err != nil {
			return nil, err
		}
		objects, err := decode(text.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, objects...)
	}
	return all, nil
}

func decode(text []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(object)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return objects, nil
			}
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}
