//go:build e2e

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// certified is a certificate for names and addresses, which is its own authority.
func certified(t *testing.T, names []string, addresses []net.IP) (certificate tls.Certificate, authority []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhooks of a test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: names, IPAddresses: addresses,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

// refuser is a webhook on port 8443 of a network namespace that refuses all in its name. The test fails when it is asked about anything but
// ConfigMaps of one namespace.
func refuser(t *testing.T, where ns.NetNS, name, namespace string, certificate tls.Certificate) {
	t.Helper()
	var listener net.Listener
	if err := where.Do(func(ns.NetNS) (err error) {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", ":8443")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, fmt.Sprint("no review: ", err), http.StatusBadRequest)
			return
		}
		if review.Request.Namespace != namespace || review.Request.Resource.Resource != "configmaps" {
			t.Errorf("%s is asked about %s of namespace %s", name, review.Request.Resource.Resource, review.Request.Namespace)
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "refused by " + name}}
		_ = json.NewEncoder(w).Encode(review)
	})}
	go func() {
		_ = server.Serve(tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}))
	}()
	t.Cleanup(func() { _ = server.Close() })
}

// webhookOf asks about the ConfigMaps of one namespace that say so, and no others.
func webhookOf(namespace string, how admissionregistrationv1.WebhookClientConfig) *admissionregistrationv1.ValidatingWebhookConfiguration {
	none, seconds := admissionregistrationv1.SideEffectClassNone, int32(5)
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-" + namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "configmaps." + namespace + ".test", ClientConfig: how, SideEffects: &none, TimeoutSeconds: &seconds, AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			ObjectSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"asked": "true"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}
}

func TestTheAPIServerCallsAWebhookInAPod(t *testing.T) {
	t.Parallel()
	plain := tenant(t, "hooked-plain")
	pods := []*corev1.Pod{shellPod(plain, "hook-plain", nodes[1])}
	service := &corev1.Service{ObjectMeta: objectMeta(plain, "hook"), Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "hook"}, Ports: []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromInt32(8443)}},
	}}
	pods[0].Labels = service.Spec.Selector
	create(t, service)
	for _, namespace := range []string{tenant(t, "hooked-a"), tenant(t, "hooked-b")} {
		vpcWithSubnets(t, namespace)
		pods = append(pods, inSubnet(t, shellPod(namespace, namespace+"-hook", nodes[0]), "a", sharedAddress))
	}
	for _, pod := range pods {
		create(t, pod)
	}
	running(t, pods...)
	var addresses []net.IP
	for _, pod := range pods {
		addresses = append(addresses, net.ParseIP(pod.Status.PodIP))
	}
	for _, pod := range pods[1:] {
		if out, err := inPod(t.Context(), pod, "ip", "-4", "addr", "show", "dev", "eth0"); err != nil || !strings.Contains(out, "inet "+sharedAddress+"/") {
			t.Fatalf("%s has not the address %s: %v\n%s", pod.Name, sharedAddress, err, out)
		}
	}
	certificate, authority := certified(t, []string{service.Name + "." + plain + ".svc"}, addresses)
	for i, pod := range pods {
		refuser(t, podNetns(t, pod), pod.Name, pod.Namespace, certificate)
		how := admissionregistrationv1.WebhookClientConfig{CABundle: authority}
		if i == 0 {
			how.Service = &admissionregistrationv1.ServiceReference{Namespace: plain, Name: service.Name}
		} else {
			url := "https://" + net.JoinHostPort(pod.Status.PodIP, "8443") + "/"
			how.URL = &url
		}
		hook := webhookOf(pod.Namespace, how)
		create(t, hook)
		t.Cleanup(func() {
			if err := kube.Delete(context.Background(), hook); err != nil {
				t.Errorf("delete %s: %v", hook.Name, err)
			}
		})
	}
	for _, pod := range pods {
		eventually(t, "a ConfigMap is refused by "+pod.Name, func(ctx context.Context) error {
			asked := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: "asked-", Labels: map[string]string{"asked": "true"}}}
			err := kube.Create(ctx, asked)
			if err == nil {
				return fmt.Errorf("%s was made", asked.Name) // the API server has not heard of the webhook yet
			}
			if strings.Contains(err.Error(), "refused by ") && !strings.Contains(err.Error(), "refused by "+pod.Name) {
				t.Fatalf("another's webhook was asked: %v", err)
			}
			if !strings.Contains(err.Error(), "refused by "+pod.Name) {
				return err
			}
			return nil
		})
	}

	t.Run("no other namespace's are asked about", func(t *testing.T) {
		create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant(t, "hooked-not"), Name: "free", Labels: map[string]string{"asked": "true"}}})
	})

	t.Run("a tenant makes no such configuration", func(t *testing.T) {
		const people = `
apiVersion: auth.mnicloud.jp/v1alpha1
kind: User
metadata: {name: hook-ada}
spec: {password: "first of ada"}
---
apiVersion: auth.mnicloud.jp/v1alpha1
kind: Tenant
metadata: {name: hook-green}
spec: {members: [{user: hook-ada, role: owner}]}
`
		admin := administrator(t)
		admin.mni(people, "apply", "-f", "-")
		t.Cleanup(func() {
			if out, err := admin.try(context.Background(), people, "mni", "delete", "-f", "-", "--timeout", "2m"); err != nil {
				t.Errorf("delete the user and tenant: %v\n%s", err, out)
			}
		})
		admin.mni("", "wait", "tenant/hook-green", "user/hook-ada", "--timeout", "1m")
		ada := newPerson(t)
		eventually(t, "hook-ada logs in", func(context.Context) error {
			_, err := ada.enter("hook-ada", "first of ada")
			return err
		})
		ada.mni("", "tenant", "use", "hook-green")
		ada.mni("", "kubeconfig", ada.kubeconfig())
		eventually(t, "hook-ada is let in", func(ctx context.Context) error {
			_, err := ada.try(ctx, "", "mni-kube", "kubectl", "get", "vpc")
			return err
		})
		for _, kind := range []string{"Validating", "Mutating"} { // by its path, as kubectl would look for the kind first and send nothing
			document := `{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "` + kind + `WebhookConfiguration", "metadata": {"name": "hook-ada"}, "webhooks": []}`
			path := "/apis/admissionregistration.k8s.io/v1/" + strings.ToLower(kind) + "webhookconfigurations"
			out, err := ada.try(t.Context(), document, "mni-kube", "kubectl", "create", "--raw", path, "-f", "-")
			if err == nil || !strings.Contains(out, "(NotFound)") {
				t.Errorf("a tenant's %s: %v; there should be no such resource:\n%s", kind, err, out)
			}
			if out, err := kubectl(t.Context(), "get", "--raw", path); err != nil || strings.Contains(out, "hook-ada") {
				t.Errorf("the owner should see what there is at %s, and no %s of a tenant: %v\n%s", path, kind, err, out)
			}
		}
	})
}
