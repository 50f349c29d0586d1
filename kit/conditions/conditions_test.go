package conditions

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/status"
)

func TestAResultDecidesConditionsPhaseAndObservedGeneration(t *testing.T) {
	now := metav1.Now()
	for _, tc := range []struct {
		name     string
		result   Result
		deleting bool
		ready    metav1.ConditionStatus
		other    string // Reconciling, Stalled or neither
		phase    status.Phase
	}{
		{"ready", Ready("Ready", "m"), false, metav1.ConditionTrue, "", status.Ready},
		{"waiting", Waiting("VpcNotFound", "m"), false, metav1.ConditionFalse, "", status.Pending},
		{"progressing", Progressing("Allocating", "m"), false, metav1.ConditionFalse, status.ConditionReconciling, status.Provisioning},
		{"failed", Failed("CIDROverlap", "m"), false, metav1.ConditionFalse, status.ConditionStalled, status.Error},
		{"progressing while deleted", Progressing("Deleting", "m"), true, metav1.ConditionFalse, status.ConditionReconciling, status.Deleting},
		{"waiting while deleted", Waiting("InUse", "m"), true, metav1.ConditionFalse, "", status.Deleting},
	} {
		t.Run(tc.name, func(t *testing.T) {
			obj := &metav1.ObjectMeta{Generation: 7}
			if tc.deleting {
				obj.DeletionTimestamp = &now
			}
			for _, before := range [][]metav1.Condition{nil, conditionsOf(Failed("X", "x")), conditionsOf(Progressing("X", "x")), conditionsOf(Ready("X", "x"))} {
				var phase status.Phase
				var observed int64
				Status{&phase, &observed, &before}.Apply(obj, tc.result)

				require.Equal(t, tc.phase, phase)
				require.EqualValues(t, 7, observed)
				ready := meta.FindStatusCondition(before, status.ConditionReady)
				require.Equal(t, tc.ready, ready.Status)
				require.Equal(t, tc.result.Reason, ready.Reason)
				require.Equal(t, "m", ready.Message)
				require.EqualValues(t, 7, ready.ObservedGeneration)
				for _, kind := range []string{status.ConditionReconciling, status.ConditionStalled} {
					c := meta.FindStatusCondition(before, kind)
					require.Equal(t, kind == tc.other, c != nil, kind)
					if c != nil {
						require.Equal(t, metav1.ConditionTrue, c.Status)
						require.EqualValues(t, 7, c.ObservedGeneration)
					}
				}
			}
		})
	}
}

func TestTheSameResultTwiceChangesNothing(t *testing.T) {
	conditions := conditionsOf(Waiting("VpcNotFound", "m"))
	before := append([]metav1.Condition(nil), conditions...)
	var phase status.Phase
	var observed int64
	Status{&phase, &observed, &conditions}.Apply(&metav1.ObjectMeta{Generation: 1}, Waiting("VpcNotFound", "m"))
	require.Equal(t, before, conditions)
}

func TestAConditionOfAnOlderGenerationIsNotReady(t *testing.T) {
	conditions := conditionsOf(Ready("Ready", "m"))
	require.True(t, IsReady(conditions, 1))
	require.False(t, IsReady(conditions, 2))
	require.False(t, IsReady(nil, 1))
	require.Equal(t, "m", Message(conditions))
	require.Empty(t, Message(nil))
}

func TestNoConditionsArePending(t *testing.T) {
	require.Equal(t, status.Pending, Phase(nil, false))
	require.Equal(t, status.Deleting, Phase(nil, true))
}

func TestSpecificConditionsCarryTheGeneration(t *testing.T) {
	var conditions []metav1.Condition
	Set(&metav1.ObjectMeta{Generation: 3}, &conditions, "AddressReady", metav1.ConditionTrue, "Allocated", "m")
	require.Len(t, conditions, 1)
	require.EqualValues(t, 3, conditions[0].ObservedGeneration)
}

func conditionsOf(r Result) []metav1.Condition {
	var conditions []metav1.Condition
	var phase status.Phase
	var observed int64
	Status{&phase, &observed, &conditions}.Apply(&metav1.ObjectMeta{Generation: 1}, r)
	return conditions
}
