package manifests

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodeName is what the embedded cloud calls its nodes. Others that have joined are not its own to remove.
var nodeName = regexp.MustCompile(`^node-[0-9]+$`)

// RemoveNodes removes the Nodes of an earlier start with more nodes, so that nothing waits for their Pods.
func RemoveNodes(ctx context.Context, config *rest.Config, keep []string) error {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if !nodeName.MatchString(n.Name) || slices.Contains(keep, n.Name) {
			continue
		}
		if err := client.IgnoreNotFound(c.Delete(ctx, n)); err != nil {
			return fmt.Errorf("remove node %s: %w", n.Name, err)
		}
	}
	return nil
}
