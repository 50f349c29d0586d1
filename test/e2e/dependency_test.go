//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/status"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// containerSays waits for the Ready condition of a Container to have the reason, and returns its message.
func containerSays(t *testing.T, c *ctrv1.Container, reason string) string {
	t.Helper()
	eventually(t, "Container "+c.Name+" says "+reason, func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		if is := meta.FindStatusCondition(c.Status.Conditions, status.ConditionReady); is == nil || is.Reason != reason {
			return fmt.Errorf("conditions %v", c.Status.Conditions)
		}
		return nil
	})
	return conditions.Message(c.Status.Conditions)
}

func TestAContainerWaitsForWhatItDependsOnKeepsItAndGoesBeforeIt(t *testing.T) {
	t.Parallel()
	namespace := tenant(t, "depends")
	vpcWithSubnets(t, namespace)
	web := whoami(namespace, "web", "a", nodes[0])
	web.Spec.DependsOn = []dependency.Dependency{{Kind: "Container", Name: "db"}}
	create(t, web)
	require.Contains(t, containerSays(t, web, dependency.ReasonNotFound), `spec.dependsOn[0] names Container "db", which does not exist`)
	db, sh := whoami(namespace, "db", "b", nodes[1]), shell(namespace, "sh", "a", nodes[1])
	create(t, db, sh)
	ready(t, db, web, sh)
	require.False(t, web.CreationTimestamp.After(db.CreationTimestamp.Time), "it was there first, and began later")
	becameReady := func(c *ctrv1.Container) time.Time {
		return meta.FindStatusCondition(c.Status.Conditions, status.ConditionReady).LastTransitionTime.Time
	}
	require.False(t, becameReady(web).Before(becameReady(db)))

	err := kube.Patch(t.Context(), db.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"dependsOn":[{"kind":"Container","name":"web"}]}}`)))
	require.ErrorContains(t, err, "the resource depends on itself: Container db -> Container web -> Container db")

	// Asked to go, it stays and answers, until what depends on it is gone.
	require.NoError(t, kube.Delete(t.Context(), db))
	require.Contains(t, containerSays(t, db, dependency.ReasonHasDependents), "the Container goes when what depends on it is deleted")
	eventually(t, "what depends on it is named", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(db), db); err != nil {
			return err
		}
		if !slices.Contains(db.Status.Dependents, "Container web") {
			return fmt.Errorf("dependents %v", db.Status.Dependents)
		}
		return nil
	})
	eventually(t, "it answers", func(ctx context.Context) error { return checkIdentity(ctx, sh, db) })
	require.NoError(t, kube.Delete(t.Context(), web))
	goes(t, web, db)

	// The Vpc with all that hangs on it, and nothing else.
	web, db = whoami(namespace, "web", "a", nodes[0]), whoami(namespace, "db", "b", nodes[1])
	web.Spec.DependsOn = []dependency.Dependency{{Kind: "Container", Name: "db"}}
	other := &vpcv1.Vpc{ObjectMeta: objectMeta(namespace, "other"), Spec: vpcv1.VpcSpec{CIDR: "10.0.0.0/16"}}
	create(t, web, db, other)
	ready(t, db, web)
	out := mustMni(t, "delete", "vpc", "main", "-n", namespace, "--cascade", "--dry-run")
	for _, line := range []string{"container/web", "container/db", "subnet/a", "subnet/b", "vpc/main"} {
		require.Contains(t, out, line+" deleted (dry run)")
	}
	mustMni(t, "delete", "vpc", "main", "-n", namespace, "--cascade")
	require.Equal(t, "vpc.vpc.mnicloud.jp/other\n", mustMni(t, "get", "-n", namespace, "-o", "name"))
}
