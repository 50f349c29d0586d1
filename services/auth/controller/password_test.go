package controller

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/auth/password"
	"github.com/mnicloud/mnicloud/services/auth/session"
)

// kubectl runs kubectl with the input and returns all it says.
func (w *world) kubectl(input string, args ...string) (string, error) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), server.Kubectl, append([]string{"--kubeconfig=" + server.Kubeconfig, "--cache-dir=" + filepath.Join(serving.dir, "kubectl-cache")}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// manifest of a User, with the password as YAML.
func manifest(name, display, plain string) string {
	return "apiVersion: auth.mnicloud.jp/v1alpha1\nkind: User\nmetadata: {name: " + name + "}\nspec: {displayName: " + display + ", password: " + plain + "}\n"
}

// stored is the User as it is stored.
func (w *world) stored(name string) *authv1.User {
	w.t.Helper()
	user := &authv1.User{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.True(w.t, w.read(user), "User %s", name)
	return user
}

// kept finds where the text is kept: in etcd's files or in the audit log.
func kept(t *testing.T, text string) (where []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Dir(server.AuditLog), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || path != server.AuditLog && !strings.HasPrefix(path, server.EtcdDir) {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(text)) {
			where = append(where, filepath.Base(path))
		}
		return err
	}))
	return where
}

// https://github.com/kubernetes/kubernetes/issues/23564
func TestAPlainPasswordIsKeptNowhere(t *testing.T) {
	w := newWorld(t)
	_, err := w.kubectl(manifest("ada", "marker-of-display", "plain-apply-1"), "apply", "-f", "-")
	require.NoError(t, err)
	_, err = w.kubectl(manifest("ada", "marker-of-display", "plain-apply-2"), "apply", "-f", "-")
	require.NoError(t, err)
	_, err = w.kubectl(manifest("ada", "marker-of-display", "plain-server-side-3"), "apply", "--server-side", "--force-conflicts", "-f", "-")
	require.NoError(t, err)
	_, err = w.kubectl(manifest("bob", "b", "plain-create-4"), "create", "--save-config", "-f", "-")
	require.NoError(t, err)
	_, err = w.kubectl(manifest("bob", "b", "plain-replace-5"), "replace", "-f", "-")
	require.NoError(t, err)
	_, err = w.kubectl("", "patch", "user", "bob", "--type=merge", "-p", `{"spec":{"password":"plain-merge-6"}}`)
	require.NoError(t, err)
	_, err = w.kubectl("", "patch", "user", "bob", "--type=json", "-p", `[{"op":"replace","path":"/spec/password","value":"plain-json-7"}]`)
	require.NoError(t, err)
	_, err = w.kubectl(manifest("bob", "b", "plain-last-applied-8"), "apply", "set-last-applied", "--create-annotation", "-f", "-")
	require.NoError(t, err)
	_, err = w.kubectl(manifest("eve", "e", "plain-dry-run-9"), "apply", "--dry-run=server", "-f", "-")
	require.NoError(t, err)

	// Refusals do not repeat it either.
	for name, plain := range map[string]string{
		"too-long": strings.Repeat("plain-long-a", 7), "much-too-long": strings.Repeat("plain-long-b", 700), "number": "1234567890123", "short": "plain-c",
		"control": `"plain-control-d\u0007"`,
	} {
		for _, how := range [][]string{{"create"}, {"apply"}, {"apply", "--server-side"}} {
			said, err := w.kubectl(manifest(name, "somebody", plain), append(how, "-f", "-")...)
			require.Error(t, err, "%s %v", name, how)
			require.NotContains(t, said, strings.Trim(plain, `"`)[:7], "%v", how)
		}
	}
	said, err := w.kubectl(manifest("copy", "my-plain-copied-e-is-here", "plain-copied-e"), "create", "-f", "-")
	require.Error(t, err)
	require.Contains(t, said, "spec.displayName: contains the password")

	require.NotEmpty(t, kept(t, "marker-of-display"), "etcd's files are looked at")
	require.Contains(t, kept(t, "/apis/auth.mnicloud.jp/v1alpha1/users/ada"), "audit.log")
	for _, plain := range []string{"plain-", "1234567890123"} {
		require.Empty(t, kept(t, plain))
	}
	for _, name := range []string{"ada", "bob"} {
		raw, err := json.Marshal(w.stored(name))
		require.NoError(t, err)
		require.NotContains(t, string(raw), "plain-")
	}
	require.Contains(t, w.stored("ada").Annotations, corev1.LastAppliedConfigAnnotation, "kubectl's own is kept, without the password")
	var events corev1.EventList
	require.NoError(t, w.List(w.ctx, &events))
	raw, err := json.Marshal(events)
	require.NoError(t, err)
	require.NotContains(t, string(raw), "plain-")
}

// https://github.com/adessoSE/budgeteer/pull/494
func TestAnUnchangedPasswordKeepsItsHashByteForByte(t *testing.T) {
	w := newWorld(t)
	yaml := manifest("ada", "Ada", "correct horse")
	_, err := w.kubectl(yaml, "apply", "-f", "-")
	require.NoError(t, err)
	first := w.stored("ada")
	require.True(t, password.Matches(first.Spec.Password, "correct horse"))
	// The controller may still be writing the status; a webhook that changes anything would write each time.
	for _, how := range [][]string{{"apply"}, {"apply", "--server-side", "--force-conflicts"}} {
		w.eventually("doing it again writes nothing", func() bool {
			before := w.stored("ada").ResourceVersion
			said, err := w.kubectl(yaml, append(how, "-f", "-")...)
			require.NoError(t, err, "%v: %s", how, said)
			return w.stored("ada").ResourceVersion == before
		})
		require.Equal(t, first.Spec.Password, w.stored("ada").Spec.Password, "%v", how)
	}
	_, err = w.kubectl(yaml, "replace", "-f", "-")
	require.NoError(t, err)
	require.Equal(t, first.Spec.Password, w.stored("ada").Spec.Password)

	user := w.stored("ada")
	user.Spec.DisplayName = "Ada L."
	require.NoError(t, w.Update(w.ctx, user))
	before := user.DeepCopy()
	user.Labels = map[string]string{"team": "red"}
	require.NoError(t, w.Patch(w.ctx, user, client.MergeFrom(before)))
	require.NoError(t, w.Patch(w.ctx, user, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"password":"correct horse"}}`))))
	require.Equal(t, first.Spec.Password, w.stored("ada").Spec.Password)

	_, err = w.kubectl("apiVersion: auth.mnicloud.jp/v1alpha1\nkind: User\nmetadata: {name: ada}\nspec: {displayName: A}\n", "apply", "-f", "-")
	require.NoError(t, err)
	require.Equal(t, first.Spec.Password, w.stored("ada").Spec.Password, "a file without the password leaves it")

	made, err := password.Hash("another one", password.MinCost)
	require.NoError(t, err)
	require.NoError(t, w.Patch(w.ctx, w.stored("ada"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"password":"`+made+`"}}`))))
	require.Equal(t, made, w.stored("ada").Spec.Password, "a hash is stored as it is")
	require.NoError(t, w.Patch(w.ctx, w.stored("ada"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"password":"correct horse"}}`))))
	require.True(t, password.Matches(w.stored("ada").Spec.Password, "correct horse"))
}

// https://github.com/bcrypt-ruby/bcrypt-ruby/issues/283
// https://github.com/php/doc-en/issues/1328
func TestAPasswordOfMoreThan72BytesIsRefusedWithWords(t *testing.T) {
	w := newWorld(t)
	said, err := w.kubectl(manifest("ada", "Ada", strings.Repeat("雲", 25)), "create", "-f", "-")
	require.Error(t, err)
	require.Contains(t, said, "spec.password: has 75 bytes in UTF-8 and may have at most 72 (24 Japanese characters)")
	_, err = w.kubectl(manifest("ada", "Ada", strings.Repeat("雲", 24)), "create", "-f", "-")
	require.NoError(t, err)
	hash := w.stored("ada").Spec.Password
	require.True(t, password.Matches(hash, strings.Repeat("雲", 24)))
	require.False(t, password.Matches(hash, strings.Repeat("雲", 25)), "what is behind the 72nd byte counts")
}

// https://github.com/openkube-hub/KubeUser/issues/38
func TestLoginAndTheCloudWorkWhileTheWebhookIsDown(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "correct horse")
	w.stop()
	said, err := w.kubectl(manifest("bob", "Bob", "plain-webhook-down"), "create", "-f", "-")
	require.Error(t, err, "nobody answers")
	require.NotContains(t, said, "plain-")
	w.start(nil, false)

	tenant := w.tenant("red", "ada", "owner")
	w.eventually("ada is a member", func() bool { _, ok := tenant.IsMember("ada", w.stored("ada").UID); return ok || !w.read(tenant) })
	service := session.New(w, w, session.Options{})
	w.eventually("there are signing keys", func() bool {
		tokens, err := service.Login(w.ctx, "ada", "correct horse")
		if err != nil {
			return false
		}
		who, err := service.Authenticate(w.ctx, tokens.Access)
		return err == nil && who.UserName == "mni:user:ada"
	})
	require.NoError(t, w.Patch(w.ctx, w.stored("ada"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"displayName":"Ada"}}`))))
	w.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "any"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	})
	require.NoError(t, w.Delete(w.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "any"}}, client.GracePeriodSeconds(0)))
	require.NoError(t, w.Delete(w.ctx, w.stored("ada")))
	require.Empty(t, kept(t, "plain-webhook-down"))
}

// https://github.com/cozystack/cozystack/issues/3125
func TestTheWebhookIsAskedAboutUsersOnly(t *testing.T) {
	w := newWorld(t)
	hook := &admissionv1.MutatingWebhookConfiguration{}
	require.NoError(t, w.Get(w.ctx, client.ObjectKey{Name: "users.auth.mnicloud.jp"}, hook))
	require.Len(t, hook.Webhooks, 1)
	require.Len(t, hook.Webhooks[0].Rules, 1)
	rule := hook.Webhooks[0].Rules[0]
	require.Equal(t, []string{"auth.mnicloud.jp"}, rule.APIGroups)
	require.Equal(t, []string{"users"}, rule.Resources, "and not users/status")
	require.Equal(t, []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}, rule.Operations)
	require.Equal(t, admissionv1.Fail, *hook.Webhooks[0].FailurePolicy)
}

func TestWithoutTheWebhooksRegistrationNoPlainPasswordIsStored(t *testing.T) {
	w := newWorld(t)
	hook := &admissionv1.MutatingWebhookConfiguration{}
	require.NoError(t, w.Get(w.ctx, client.ObjectKey{Name: "users.auth.mnicloud.jp"}, hook))
	require.NoError(t, w.Delete(w.ctx, hook))
	t.Cleanup(func() {
		hook.ResourceVersion = ""
		w.create(hook)
		w.eventually("the webhook is asked again", func() bool {
			user := &authv1.User{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: authv1.UserSpec{Password: "correct horse"}}
			return w.Create(w.ctx, user, client.DryRunAll) == nil
		})
	})
	var said string
	w.eventually("nobody hashes", func() bool {
		var err error
		said, err = w.kubectl(manifest("ada", "Ada", "plain-unregistered-1"), "create", "-f", "-")
		if err == nil {
			_, _ = w.kubectl("", "delete", "user", "ada")
		}
		return err != nil && strings.Contains(said, "was not hashed")
	})
	require.NotContains(t, said, "plain-")
	for i, how := range [][]string{{"create"}, {"apply"}, {"apply", "--server-side"}, {"create", "--save-config"}} {
		said, err := w.kubectl(manifest("bob", "Bob", "plain-unregistered-2"), append(how, "-f", "-")...)
		require.Error(t, err)
		require.NotContains(t, said, "plain-", "%d", i)
	}
	said, err := w.kubectl(manifest("bob", "Bob", strings.Repeat("plain-long-", 200)), "create", "-f", "-")
	require.Error(t, err)
	require.NotContains(t, said, "plain-")
	w.create(&authv1.User{ObjectMeta: metav1.ObjectMeta{Name: "eve"}})
	said, err = w.kubectl(manifest("eve", "Eve", "plain-unregistered-3"), "apply", "set-last-applied", "--create-annotation", "-f", "-")
	require.Error(t, err)
	require.Contains(t, said, "has a password")
	// An annotation, what is written to users/status and other fields need no webhook.
	require.NoError(t, w.Patch(w.ctx, w.stored("eve"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`))))
	require.Empty(t, kept(t, "plain-unregistered-2"))
	require.Empty(t, kept(t, "plain-unregistered-3"))
}

func TestOtherWritersOfAUserLeaveNoPlainPassword(t *testing.T) {
	w := newWorld(t)
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "auth.mnicloud.jp/v1alpha1", "kind": "User"}}
	u.SetName("ada")
	require.NoError(t, unstructured.SetNestedField(u.Object, "plain-annotated-1", "spec", "password"))
	u.SetAnnotations(map[string]string{"example.com/applied": `{"password":"plain-annotated-1"}`})
	require.ErrorContains(t, w.Create(w.ctx, u), "metadata.annotations: contains the password")
	u.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: "plain-annotated-1"})
	require.ErrorContains(t, w.Create(w.ctx, u), "must be the JSON that kubectl writes")
	require.Empty(t, kept(t, "plain-annotated-1"))
}
