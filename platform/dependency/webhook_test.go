package dependency

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	kit "github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/platform/dependency/config"
)

// serving is where the webhook listens, and its certificate, which is its own authority.
type serving struct {
	port int
	dir  string
	pem  []byte
}

func newServing(t *testing.T) *serving {
	t.Helper()
	s := &serving{dir: t.TempDir()}
	// The webhook is served at this port again and again, so it is none that the kernel gives to others meanwhile (32768 to 60999).
	require.Eventually(t, func() bool {
		s.port = 20000 + mathrand.IntN(10000)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", s.port))
		return err == nil && listener.Close() == nil
	}, patience, time.Millisecond)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhook"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	s.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "webhook.crt"), s.pem, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "webhook.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return s
}

// install registers the webhook until the test ends, and waits until it is asked.
func (s *serving) install(w *tenant) *admissionregistrationv1.ValidatingWebhookConfiguration {
	w.t.Helper()
	text := &strings.Builder{}
	require.NoError(w.t, template.Must(template.New("").Parse(config.Webhook)).Execute(text, map[string]string{
		"WebhookURL": fmt.Sprintf("https://127.0.0.1:%d", s.port), "CABundle": base64.StdEncoding.EncodeToString(s.pem),
	}))
	registration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	require.NoError(w.t, yaml.UnmarshalStrict([]byte(text.String()), registration))
	require.NoError(w.t, w.Create(w.ctx, registration))
	probe := w.object("Vpc", "probe", map[string]any{"cidr": "10.0.0.0/16"}, onVPC("none"))
	w.t.Cleanup(func() {
		require.NoError(w.t, w.Delete(w.ctx, registration))
		w.eventually("the webhook is not asked any more", func() bool { return w.Create(w.ctx, probe.DeepCopy(), client.DryRunAll) == nil })
	})
	w.eventually("the webhook is asked", func() bool {
		err := w.Create(w.ctx, probe.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "failed calling webhook")
	})
	return registration
}

func (s *serving) server() webhook.Server {
	return webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: s.port, CertDir: s.dir, CertName: "webhook.crt", KeyName: "webhook.key"})
}

// https://github.com/fluxcd/kustomize-controller/issues/1712, https://github.com/cozystack/cozystack/issues/3125,
// https://github.com/openkube-hub/KubeUser/issues/38
func TestCyclesAreRefusedAndWithoutTheWebhookEverythingElseGoesOn(t *testing.T) {
	w := newTenant(t)
	s := newServing(t)
	registration := s.install(w)
	for _, hook := range registration.Webhooks {
		require.Equal(t, []string{"*"}, hook.Rules[0].Resources, "and not their statuses")
		require.Equal(t, admissionregistrationv1.NamespacedScope, *hook.Rules[0].Scope, "and not Users: people log in without it")
	}

	// It is down: what depends on nothing is written, changed, said how it is, and deleted.
	main := w.vpc("main")
	w.setReady(main, true, "")
	require.NoError(t, w.Patch(w.ctx, main, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))))
	front := w.object("Subnet", "front", map[string]any{"vpc": "main", "cidr": "10.0.1.0/24"}, onVPC("main"))
	require.ErrorContains(t, w.Create(w.ctx, front.DeepCopy()), "failed calling webhook")
	// Kinds that are not the cloud's never meet it, whatever is in them.
	require.NoError(t, w.Create(w.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "any"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}))
	w.define(things("things.example.com"))
	foreign := w.thing("example.com", "foreign", onVPC("main"))
	w.eventually("a kind of somebody else's is written", func() bool { return w.Create(w.ctx, foreign) == nil })

	stop := run(t, s.server())
	w.eventually("it answers", func() bool { return w.Create(w.ctx, front.DeepCopy()) == nil })
	refused := func(body string, says string) {
		t.Helper()
		w.eventually("refused: "+says, func() bool {
			err := w.Patch(w.ctx, main, client.RawPatch(types.MergePatchType, []byte(body)), client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), says)
		})
	}
	refused(`{"spec":{"dependsOn":[{"kind":"Subnet","name":"front"}]}}`, "spec.dependsOn: the resource depends on itself: Vpc main -> Subnet front -> Vpc main; take one of them out")
	refused(`{"spec":{"dependsOn":[{"kind":"Pod","name":"any"}]}}`, "spec.dependsOn[0].kind: there is no kind Pod that a tenant has resources of")
	refused(`{"spec":{"dependsOn":[{"kind":"Vpc","name":"main"}]}}`, "spec.dependsOn must not name the resource itself")
	refused(`{"spec":{"dependsOn":[{"kind":"vpc","name":"other"}]}}`, "kind must be the name of a kind, such as Subnet or Subnet.vpc.mnicloud.jp")
	refused(`{"spec":{"dependsOn":[{"kind":"Vpc","name":"other/secret"}]}}`, "name must be the name of a resource of the same tenant")
	// A kind of a group that nobody knew when the webhook was registered.
	w.define(things("things.lab.mnicloud.jp"))
	thing := w.thing("lab.mnicloud.jp", "late", onVPC("main"))
	w.eventually("the kind is served", func() bool { return w.Create(w.ctx, thing) == nil })
	refused(`{"spec":{"dependsOn":[{"kind":"Thing","name":"late"}]}}`, "the resource depends on itself: Vpc main -> Thing late -> Vpc main")
	require.ErrorContains(t, w.Patch(w.ctx, thing, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"dependsOn":[{"kind":"Nothing","name":"x"}]}}`))), "there is no kind Nothing")
	require.NoError(t, w.Delete(w.ctx, thing))
	// Outside the tenants' namespaces too.
	outside := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "outside-"}}
	require.NoError(t, w.Create(w.ctx, outside))
	elsewhere := w.thing("lab.mnicloud.jp", "elsewhere", kit.Dependency{Kind: "Nothing", Name: "x"})
	elsewhere.SetNamespace(outside.Name)
	require.ErrorContains(t, w.Create(w.ctx, elsewhere), "there is no kind Nothing")
	// And of a version that Kubernetes' own kinds have, too.
	stable := things("things.stable.mnicloud.jp")
	stable.Spec.Versions[0].Name = "v1"
	w.define(stable)
	stays := w.thing("stable.mnicloud.jp", "stays", kit.Dependency{Kind: "Nothing", Name: "x"})
	stays.SetAPIVersion("stable.mnicloud.jp/v1")
	w.eventually("the kind is served, and its webhook asked", func() bool {
		err := w.Create(w.ctx, stays.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "there is no kind Nothing")
	})
	// What comes later may be named before.
	early := w.create(w.object("Vpc", "early", map[string]any{"cidr": "10.0.0.0/16"}, kit.Dependency{Kind: "Container", Name: "web"}))
	w.untilTold(early, kit.ReasonNotFound)

	// It is down again: what depends on something is changed otherwise, and goes.
	stop()
	require.True(t, w.read(front))
	require.NoError(t, w.Patch(w.ctx, front, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))))
	require.NoError(t, w.Delete(w.ctx, front))
	require.NoError(t, w.Patch(w.ctx, early, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"dependsOn":null}}`))), "an entry can be taken out")
	run(t, nil)
	require.NoError(t, w.Delete(w.ctx, main))
	w.untilGone(main)
}

// A resource of another tenant is none: https://github.com/golang/vulndb/issues/3109, https://github.com/golang/vulndb/issues/3530,
// https://github.com/kubernetes/kubernetes/issues/65200
func TestNothingOfAnotherTenantIsEverMeant(t *testing.T) {
	w, other := newTenant(t), newTenant(t)
	run(t, nil)
	theirs := other.vpc("base")
	other.setReady(theirs, true, "")
	mine := w.vpc("mine", onVPC("base"))
	require.Contains(t, w.untilTold(mine, kit.ReasonNotFound), "does not exist in this namespace")
	other.untilMet(other.vpc("marker", onVPC("base")))
	require.True(t, w.read(mine))
	require.False(t, w.dependencies(mine).Met)
	other.eventually("only its own are told", func() bool {
		return other.read(theirs) && len(other.dependents(theirs)) == 1
	})
	require.Equal(t, []string{"Vpc marker"}, other.dependents(theirs))
}

func TestTheSteadyStateCostsNoWrites(t *testing.T) {
	w := newTenant(t)
	stop := run(t, nil)
	base := w.vpc("base")
	w.setReady(base, true, "")
	met, missing := w.vpc("met", onVPC("base")), w.vpc("missing", onVPC("none"))
	a, b := w.vpc("a", onVPC("b")), w.vpc("b", onVPC("a"))
	w.untilMet(met)
	w.untilTold(missing, kit.ReasonNotFound)
	w.untilTold(a, kit.ReasonCycle)
	w.untilTold(b, kit.ReasonCycle)
	for o, want := range map[string]int{"base": 1, "a": 1, "b": 1} {
		u := w.object("Vpc", o, nil)
		w.eventually("back references", func() bool { return w.read(u) && len(w.dependents(u)) == want })
	}
	stop()
	versions := func() (out []string) {
		for _, o := range []string{"base", "met", "missing", "a", "b"} {
			u := w.object("Vpc", o, nil)
			require.True(t, w.read(u))
			out = append(out, u.GetResourceVersion())
		}
		return out
	}
	before := versions()
	// A controller that starts looks at everything there is; a marker's back reference, which comes last, shows that it has.
	run(t, nil)
	other := newTenant(t)
	marker := other.vpc("marker")
	other.subnet("front", "marker")
	other.eventually("the marker is looked at", func() bool { return other.read(marker) && len(other.dependents(marker)) == 1 })
	require.Equal(t, before, versions())
}
