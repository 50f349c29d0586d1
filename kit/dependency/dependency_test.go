package dependency

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/status"
)

const own = "test.mnicloud.jp/cleanup"

type object struct {
	metav1.ObjectMeta
	Declared
}

func (o *object) Dependencies() Declared { return o.Declared }

func TestAnObjectWaitsUntilWhatItDependsOnWasFoundReady(t *testing.T) {
	obj := &object{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	require.Nil(t, Waits(obj, own), "it depends on nothing")
	obj.On = []Dependency{{Kind: "Vpc", Name: "main"}}
	waits := func(seen *Status) *conditions.Result {
		obj.Seen = seen
		return Waits(obj, own)
	}
	require.Equal(t, ReasonUnknown, waits(nil).Reason)
	require.Equal(t, ReasonUnknown, waits(&Status{ObservedGeneration: 1, Met: true}).Reason, "that was another spec")
	require.Equal(t, conditions.Waiting(ReasonNotReady, "m"), *waits(&Status{ObservedGeneration: 2, Reason: ReasonNotReady, Message: "m"}))
	require.Equal(t, conditions.Failed(ReasonCycle, "m"), *waits(&Status{ObservedGeneration: 2, Reason: ReasonCycle, Message: "m"}))
	require.Nil(t, waits(&Status{ObservedGeneration: 2, Met: true}))
	obj.Finalizers = []string{own}
	require.Nil(t, waits(nil), "it has begun")
}

func TestAGuardedObjectStaysAndNamesWhatDependsOnIt(t *testing.T) {
	obj := &object{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{own}}, Declared: Declared{Dependents: []string{"Container a", "Subnet b"}}}
	require.Nil(t, Held("Vpc", obj))
	obj.Finalizers = append(obj.Finalizers, Guard)
	require.Equal(t, "the Vpc goes when what depends on it is deleted: Container a, Subnet b", Held("Vpc", obj).Message)
	obj.Dependents = nil
	require.Equal(t, "the Vpc goes when what depends on it is deleted", Held("Vpc", obj).Message)
}

func TestAReferenceSaysWhatItWaitsForAndWhatHelps(t *testing.T) {
	r := Reference{Field: "spec.vpc", Kind: "Vpc", Name: "main", By: "Subnet"}
	require.Equal(t, conditions.Waiting("VpcNotFound",
		`spec.vpc names Vpc "main", which does not exist in this namespace; create it, or make a new Subnet that names another`), *r.NotFound())
	vpc := &metav1.ObjectMeta{Generation: 3}
	ready := metav1.Condition{Type: status.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: 3}
	require.Nil(t, r.Unready(vpc, []metav1.Condition{ready}))
	ready.ObservedGeneration = 2
	require.Equal(t, "VpcNotReady", r.Unready(vpc, []metav1.Condition{ready}).Reason, "that was another spec")
	ready.Status, ready.Message = metav1.ConditionFalse, "it is made"
	require.Equal(t, `spec.vpc names Vpc "main", which is not ready yet: it is made`, r.Unready(vpc, []metav1.Condition{ready}).Message)
	vpc.DeletionTimestamp = &metav1.Time{}
	require.Equal(t, conditions.Waiting("VpcDeleting", `spec.vpc names Vpc "main", which is being deleted; delete this Subnet too`), *r.Unready(vpc, nil))
}
