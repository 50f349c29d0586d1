package apply

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const owner = "test.mnicloud.jp/controller"

// counting is a client that counts the requests that write.
func counting(writes *int, objects ...client.Object) client.Client {
	return fake.NewClientBuilder().WithObjects(objects...).WithStatusSubresource(&corev1.Pod{}).WithReturnManagedFields().
		WithInterceptorFuncs(interceptor.Funcs{
			Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
				*writes++
				return c.Apply(ctx, obj, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				*writes++
				return c.SubResource(sub).Patch(ctx, obj, p, opts...)
			},
		}).Build()
}

func configMap(labels, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", Labels: labels}, Data: data}
}

func TestObjectIsAppliedOnlyWhenItDiffers(t *testing.T) {
	ctx, writes := t.Context(), 0
	c := counting(&writes)
	read := func() *corev1.ConfigMap {
		live := &corev1.ConfigMap{}
		require.NoError(t, c.Get(ctx, client.ObjectKey{Namespace: "a", Name: "x"}, live))
		return live
	}
	want := configMap(map[string]string{"l": "1"}, map[string]string{"k": "1", "gone": "soon"})

	require.NoError(t, Object(ctx, c, owner, nil, want))
	require.Equal(t, 1, writes)
	require.NoError(t, Object(ctx, c, owner, read(), want))
	require.Equal(t, 1, writes, "the same again must not write")

	others := read()
	others.Data["theirs"] = "1"
	require.NoError(t, c.Update(ctx, others, client.FieldOwner("someone")))
	require.NoError(t, Object(ctx, c, owner, read(), want))
	require.Equal(t, 1, writes, "another owner's field is no difference")

	want = configMap(map[string]string{"l": "1"}, map[string]string{"k": "1"})
	require.NoError(t, Object(ctx, c, owner, read(), want))
	require.Equal(t, 2, writes, "a field that is not wanted any more is a difference")
	require.Equal(t, map[string]string{"k": "1", "theirs": "1"}, read().Data)

	want.Data["k"] = "2"
	require.NoError(t, Object(ctx, c, owner, read(), want))
	require.Equal(t, "2", read().Data["k"])
	require.NoError(t, Object(ctx, c, owner, read(), want))
	require.Equal(t, 3, writes)
}

func TestAnObjectOfAnotherOwnerIsAppliedOnceAndThenOwned(t *testing.T) {
	ctx, writes := t.Context(), 0
	live := configMap(nil, map[string]string{"k": "1"})
	c := counting(&writes, live)
	for range 2 {
		require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(live), live))
		require.NoError(t, Object(ctx, c, owner, live, configMap(nil, map[string]string{"k": "1"})))
	}
	require.Equal(t, 1, writes)
}

func TestStatusIsPatchedOnlyWhenItDiffers(t *testing.T) {
	ctx, writes := t.Context(), 0
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"}}
	c := counting(&writes, pod)
	require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(pod), pod))

	after := pod.DeepCopy()
	require.NoError(t, Status(ctx, c, pod, after))
	require.Zero(t, writes)
	after.Status.Message = "changed"
	require.NoError(t, Status(ctx, c, pod, after))
	require.Equal(t, 1, writes)
	require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(pod), pod))
	require.Equal(t, "changed", pod.Status.Message)
}

func TestTheStatusOfAnObjectThatIsGoneIsNoError(t *testing.T) {
	writes := 0
	before := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"}}
	after := before.DeepCopy()
	after.Status.Message = "changed"
	require.NoError(t, Status(t.Context(), counting(&writes), before, after))
}
