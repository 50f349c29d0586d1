package manifests

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// The ConfigMap that says what was installed last of what the machine's owner may change: the default external addresses.
const (
	appliedNamespace = "mni-system"
	appliedName      = "mni-up-external"
)

// installExternal applies those objects that say something else than the last time, which is when `mni up` is given another pool or
// peer. What the owner has changed or deleted since stays so.
func installExternal(ctx context.Context, c client.Client, objects []*unstructured.Unstructured, peer string) error {
	record := &unstructured.Unstructured{}
	record.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	record.SetNamespace(appliedNamespace)
	record.SetName(appliedName)
	read := record.DeepCopy()
	if err := c.Get(ctx, client.ObjectKeyFromObject(record), read); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read what was installed last: %w", err)
	}
	last, _, err := unstructured.NestedStringMap(read.Object, "data")
	if err != nil {
		return fmt.Errorf("read what was installed last: %w", err)
	}
	now := map[string]string{}
	var changed []*unstructured.Unstructured
	for _, object := range objects {
		text, err := object.MarshalJSON()
		if err != nil {
			return err
		}
		key := object.GetKind() + "." + object.GetName()
		now[key] = string(text)
		if last[key] != now[key] {
			changed = append(changed, object)
		}
	}
	if maps.Equal(last, now) {
		return nil
	}
	if err := apply(ctx, c, changed); err != nil {
		return err
	}
	if err := removePeers(ctx, c, peer); err != nil {
		return err
	}
	if err := unstructured.SetNestedStringMap(record.Object, now, "data"); err != nil {
		return err
	}
	return apply(ctx, c, []*unstructured.Unstructured{record})
}

// removePeers removes the BGPPeer of an earlier start with another router.
func removePeers(ctx context.Context, c client.Client, keep string) error {
	peers := &unstructured.UnstructuredList{}
	peers.SetGroupVersionKind(netv1.GroupVersion.WithKind("BGPPeerList"))
	if err := c.List(ctx, peers, client.MatchingLabels{"app.kubernetes.io/managed-by": "mni-up"}); err != nil {
		return fmt.Errorf("list the BGPPeers: %w", err)
	}
	for i := range peers.Items {
		if peers.Items[i].GetName() == keep {
			continue
		}
		if err := client.IgnoreNotFound(c.Delete(ctx, &peers.Items[i])); err != nil {
			return fmt.Errorf("remove BGPPeer %s: %w", peers.Items[i].GetName(), err)
		}
	}
	return nil
}
