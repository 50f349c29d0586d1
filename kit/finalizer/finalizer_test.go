package finalizer

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

const ours = "vpc.mnicloud.jp/cleanup"

func TestTheFinalizerIsAddedOnceAndRemovedOnce(t *testing.T) {
	ctx := t.Context()
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", Finalizers: []string{"other/one"}}}
	c := fake.NewClientBuilder().WithObjects(obj).Build()
	require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(obj), obj))

	require.NoError(t, Ensure(ctx, c, obj, ours))
	require.Equal(t, []string{"other/one", ours}, obj.Finalizers)
	version := obj.ResourceVersion
	require.NoError(t, Ensure(ctx, c, obj, ours))
	require.Equal(t, version, obj.ResourceVersion, "a second Ensure must not write")

	require.NoError(t, Remove(ctx, c, obj, ours))
	require.Equal(t, []string{"other/one"}, obj.Finalizers)
	require.NoError(t, Remove(ctx, c, obj, ours))
}

func TestAFinalizerOfSomebodyElseIsNotLostToAStaleRead(t *testing.T) {
	ctx := t.Context()
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"}}
	c := fake.NewClientBuilder().WithObjects(obj).Build()
	require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(obj), obj))
	stale := obj.DeepCopy()
	require.NoError(t, Ensure(ctx, c, obj, "other/one"))

	require.True(t, apierrors.IsConflict(Ensure(ctx, c, stale, ours)))
}

func TestRemovingFromAnObjectThatIsGoneSucceeds(t *testing.T) {
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", Finalizers: []string{ours}, ResourceVersion: "1"}}
	require.NoError(t, Remove(t.Context(), fake.NewClientBuilder().Build(), obj, ours))
}
