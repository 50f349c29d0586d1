//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

const accountsPeople = `
apiVersion: auth.mnicloud.jp/v1alpha1
kind: User
metadata: {name: sa-ada}
spec: {password: "word of ada"}
---
apiVersion: auth.mnicloud.jp/v1alpha1
kind: User
metadata: {name: sa-bob}
spec: {password: "word of bob"}
---
apiVersion: auth.mnicloud.jp/v1alpha1
kind: Tenant
metadata: {name: sa-red}
spec: {members: [{user: sa-ada, role: owner}, {user: sa-bob, role: member}]}
---
apiVersion: auth.mnicloud.jp/v1alpha1
kind: Tenant
metadata: {name: sa-blue}
spec: {members: [{user: sa-ada, role: owner}]}
`

const accountsVpc = "{apiVersion: vpc/v1alpha, kind: Vpc, metadata: {name: %s}, spec: {cidr: 10.0.0.0/16}}"

func TestAServiceAccountWorksInItsTenantAndNowhereElse(t *testing.T) {
	t.Parallel()
	admin := administrator(t)
	admin.mni(accountsPeople, "apply", "-f", "-")
	t.Cleanup(func() {
		if out, err := admin.try(context.Background(), accountsPeople, "mni", "delete", "-f", "-", "--timeout", "2m", "--ignore-not-found"); err != nil {
			t.Errorf("delete the users and tenants: %v\n%s", err, out)
		}
	})
	admin.mni("", "wait", "tenant/sa-red", "tenant/sa-blue", "user/sa-ada", "user/sa-bob", "--timeout", "1m")
	ada, bob, robot, other := newPerson(t), newPerson(t), newPerson(t), newPerson(t)
	for p, name := range map[*person]string{ada: "ada", bob: "bob"} {
		eventually(t, "sa-"+name+" is a member", func(context.Context) error {
			out, err := p.enter("sa-"+name, "word of "+name)
			if err == nil && !strings.Contains(out, "sa-red") {
				err = errors.New(out)
			}
			return err
		})
	}

	for _, tenant := range []string{"sa-red", "sa-blue"} {
		eventually(t, "a service account of "+tenant+" is made", func(ctx context.Context) error { // the quota is counted with a delay
			_, err := ada.try(ctx, "", "mni", "serviceaccount", "create", "ci", "-t", tenant, "--role", "member")
			return err
		})
	}
	bob.refused("cannot create resource", "", "serviceaccount", "create", "mine", "-t", "sa-red", "--role", "viewer")
	bob.contains("ci", bob.mni("", "serviceaccount", "ls", "-t", "sa-red"))
	bob.refused("made, listed and revoked by its admins and owners", "", "token", "create", "t", "-t", "sa-red", "--service-account", "ci")
	bob.refused("made, listed and revoked by its admins and owners", "", "token", "ls", "-t", "sa-red", "--service-accounts")

	for p, tenant := range map[*person]string{robot: "sa-red", other: "sa-blue"} {
		out, err := ada.try(t.Context(), "", "mni", "token", "create", "nightly", "-t", tenant, "--service-account", "ci", "--expires", "1h")
		if err != nil {
			t.Fatal(err)
		}
		text, _, _ := strings.Cut(out, "\n")
		if out, err := p.login(text, "--token-stdin"); err != nil || !strings.Contains(out, "service account ci") || !strings.Contains(out, tenant+" (member)") {
			t.Fatalf("%v\n%s", err, out)
		}
		p.mni(fmt.Sprintf(accountsVpc, "of-"+tenant), "apply", "-f", "-")
		p.mni("", "kubeconfig", p.kubeconfig())
	}
	robot.contains("of-sa-red", robot.mni("", "get", "vpc"))
	robot.contains("vpc.vpc.mnicloud.jp/by-kubectl created", robot.kubectl("{apiVersion: vpc.mnicloud.jp/v1alpha1, kind: Vpc, metadata: {name: by-kubectl}, spec: {cidr: 10.1.0.0/16}}", "apply", "-f", "-"))
	robot.contains("of-sa-red", robot.kubectl("", "get", "vpc", "-o", "name"))
	for _, out := range []string{robot.kubectl("", "get", "vpc", "-A"), robot.mni("", "get", "vpc", "-A")} {
		if strings.Contains(out, "of-sa-blue") {
			t.Errorf("the service account of sa-red sees:\n%s", out)
		}
	}
	if out, err := robot.try(t.Context(), "", "mni-kube", "kubectl", "get", "vpc", "-n", "sa-blue"); err == nil {
		t.Errorf("the service account of sa-red gets:\n%s", out)
	}
	robot.refused(`there is no tenant "sa-blue" that you are a member of`, "", "get", "vpc", "-t", "sa-blue")

	// As an admin it makes nobody either.
	ada.mni("{apiVersion: auth/v1alpha, kind: ServiceAccount, metadata: {name: ci, namespace: sa-red}, spec: {role: admin}}", "apply", "-f", "-", "--force-conflicts")
	eventually(t, "it is an admin", func(ctx context.Context) error {
		out, err := robot.try(ctx, "", "mni", "whoami", "-o", "json")
		if err == nil && !strings.Contains(out, `"role": "admin"`) {
			err = errors.New(out)
		}
		return err
	})
	robot.refused("a service account does not make, change or delete service accounts", "", "serviceaccount", "create", "more", "--role", "viewer")
	robot.refused("a service account does not say who the members are", "", "tenant", "add", "sa-red", "sa-eve", "--role", "viewer")
	robot.refused("an API token does not make", "", "token", "create", "more", "--service-account", "ci")

	id, _, _ := strings.Cut(strings.Split(ada.mni("", "token", "ls", "-t", "sa-red", "--service-account", "ci"), "\n")[1], " ")
	ada.mni("", "token", "rm", id, "-t", "sa-red", "--service-account", "ci")
	eventually(t, "the token that was revoked is good for nothing", func(ctx context.Context) error {
		out, err := robot.try(ctx, "", "mni", "get", "vpc")
		if err == nil || !strings.Contains(out, "has ended") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	other.contains("of-sa-blue", other.mni("", "get", "vpc"))

	// The tenant takes account and token along.
	blue := &authv1.Tenant{}
	if err := kube.Get(t.Context(), client.ObjectKey{Name: "sa-blue"}, blue); err != nil {
		t.Fatal(err)
	}
	ofBlue := client.MatchingLabels{authv1.LabelTenantUID: string(blue.UID)}
	admin.mni("", "delete", "tenant", "sa-blue", "--timeout", "2m")
	if err := kube.Get(t.Context(), client.ObjectKey{Name: "sa-blue"}, blue); !apierrors.IsNotFound(err) {
		t.Errorf("Tenant sa-blue: %v", err)
	}
	var left corev1.SecretList
	err := kube.List(t.Context(), &left, client.InNamespace(authv1.SystemNamespace), ofBlue)
	if err != nil || len(left.Items) > 0 {
		t.Errorf("tokens of sa-blue: %v, %d", err, len(left.Items))
	}
	if out, err := other.try(t.Context(), "", "mni", "get", "vpc"); err == nil {
		t.Errorf("the service account of a tenant that is gone gets:\n%s", out)
	}
}
