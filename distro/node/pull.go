package node

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pullPatience is how long a container runtime that does not answer is waited for.
const pullPatience = 10 * time.Second

// Pull has the container runtime at a socket pull images, so that the node's first Pods need not wait for them. Images that it has are
// asked for again, at the cost of a request each.
func Pull(ctx context.Context, socket string, images ...string) error {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to the container runtime: %w", err)
	}
	defer func() { _ = connection.Close() }()
	client := cri.NewImageServiceClient(connection)
	answering, cancel := context.WithTimeout(ctx, pullPatience)
	defer cancel()
	if _, err := client.ListImages(answering, &cri.ListImagesRequest{}, grpc.WaitForReady(true)); err != nil {
		return fmt.Errorf("ask the container runtime at %s for its images: %w", socket, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, image := range images {
		group.Go(func() error {
			if _, err := client.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: image}}); err != nil {
				return fmt.Errorf("pull %s: %w", image, err)
			}
			return nil
		})
	}
	return group.Wait()
}
