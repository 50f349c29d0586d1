package cli

import (
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/dynamic"
)

// selection is how a command line says which objects it is about: kinds and names, or files.
type selection struct {
	args          []string
	files         resource.FilenameOptions
	labels        string
	all           bool
	allNamespaces bool
	// absentIsFine leaves out objects that are named but not there; otherwise they are errors.
	absentIsFine bool
}

// target is one object that a command waits for or deletes.
type target struct {
	mapping         *meta.RESTMapping
	namespace, name string
	uid             types.UID
	client          dynamic.ResourceInterface
}

func (t *target) String() string { return display(t.mapping.GroupVersionKind.GroupKind(), t.name) }

// check refuses selections that cannot be meant.
func (s *selection) check() error {
	named := len(s.args) > 1 || (len(s.args) == 1 && strings.Contains(s.args[0], "/"))
	switch {
	case len(s.args) > 0 && len(s.files.Filenames) > 0:
		return usagef("give kinds and names, or files with -f, not both")
	case named && (s.all || s.labels != ""):
		return usagef("give names, or select with -l or --all, not both")
	}
	return nil
}

// targets finds the selected objects. Besides those it found it returns an error for each one it did not.
func (c *connection) targets(ctx context.Context, s *selection) ([]*target, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if len(s.files.Filenames) > 0 {
		return c.targetsOfFiles(ctx, s)
	}
	client, err := c.factory().DynamicClient()
	if err != nil {
		return nil, err
	}
	namespace, _, err := c.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, err
	}
	result := c.factory().NewBuilder().Unstructured().ContinueOnError().
		NamespaceParam(namespace).DefaultNamespace().AllNamespaces(s.allNamespaces).
		LabelSelectorParam(s.labels).
		ResourceTypeOrNameArgs(true, everythingWord(s.args)...).
		Latest().Flatten().Do()
	if s.absentIsFine {
		result.IgnoreErrors(apierrors.IsNotFound)
	}
	infos, err := result.Infos()
	var targets []*target
	for _, info := range infos {
		t := &target{mapping: info.Mapping, namespace: info.Namespace, name: info.Name, client: clientFor(client, info.Mapping, info.Namespace)}
		if o, ok := info.Object.(*unstructured.Unstructured); ok {
			t.uid = o.GetUID()
		}
		targets = append(targets, t)
	}
	return targets, err
}

// targetsOfFiles finds the objects that files name.
func (c *connection) targetsOfFiles(ctx context.Context, s *selection) ([]*target, error) {
	documents, errs := readDocuments(&s.files, c.streams.In)
	if len(documents) == 0 {
		return nil, errors.Join(errs...)
	}
	client, err := c.factory().DynamicClient()
	if err != nil {
		return nil, err
	}
	var targets []*target
	for _, d := range documents {
		mapping, err := c.place(d)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		t := &target{mapping: mapping, namespace: d.object.GetNamespace(), name: d.object.GetName()}
		t.client = clientFor(client, mapping, t.namespace)
		switch o, err := t.client.Get(ctx, t.name, metav1.GetOptions{}); {
		case err == nil:
			t.uid = o.GetUID()
			targets = append(targets, t)
		case !apierrors.IsNotFound(err):
			return nil, c.refusedDocument(d, err)
		case !s.absentIsFine:
			errs = append(errs, d.errorf("", "%s not found%s", t, c.elsewhere(t.namespace)))
		}
	}
	return targets, errors.Join(errs...)
}

// place finds the kind of a document's object and sets its namespace.
func (c *connection) place(d *document) (*meta.RESTMapping, error) {
	mapper, err := c.mapper()
	if err != nil {
		return nil, err
	}
	gvk := d.object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		if message, ok := unknownKind(err); ok {
			return nil, d.errorf("kind", "%s%s", message, c.similarKind(gvk))
		}
		return nil, err
	}
	if !namespaced(mapping) {
		d.object.SetNamespace("")
		return mapping, nil
	}
	namespace, given, err := c.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, err
	}
	switch own := d.object.GetNamespace(); {
	case own == "":
		d.object.SetNamespace(namespace)
	case given && own != namespace:
		return nil, d.errorf("metadata.namespace", "%s is declared in namespace %q, but the command line says %q: leave one of them out",
			display(gvk.GroupKind(), d.object.GetName()), own, namespace)
	}
	return mapping, nil
}

func clientFor(client dynamic.Interface, mapping *meta.RESTMapping, namespace string) dynamic.ResourceInterface {
	if !namespaced(mapping) {
		return client.Resource(mapping.Resource)
	}
	return client.Resource(mapping.Resource).Namespace(namespace)
}
