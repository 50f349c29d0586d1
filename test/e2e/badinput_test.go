//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

func vpcYAML(name, cidr string) string {
	return fmt.Sprintf("apiVersion: vpc.mnicloud.jp/v1alpha1\nkind: Vpc\nmetadata:\n  name: %s\nspec:\n  cidr: %q\n", name, cidr)
}

func subnetYAML(name, vpc, cidr string) string {
	return fmt.Sprintf("apiVersion: vpc.mnicloud.jp/v1alpha1\nkind: Subnet\nmetadata:\n  name: %s\nspec:\n  vpc: %s\n  cidr: %q\n", name, vpc, cidr)
}

func containerYAML(name, subnet, image string) string {
	return fmt.Sprintf("apiVersion: ctr.mnicloud.jp/v1alpha1\nkind: Container\nmetadata:\n  name: %s\nspec:\n  subnet: %s\n  image: %q\n", name, subnet, image)
}

func TestBadInputIsRefusedAtAdmissionNamingTheField(t *testing.T) {
	t.Parallel()
	namespace := tenant(t, "bad-admission")
	good := vpcYAML("main", "10.0.0.0/16") + "---\n" + subnetYAML("a", "main", "10.0.1.0/24")
	if out, err := mniInput(t.Context(), good, "apply", "-n", namespace, "-f", "-"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range []struct{ name, document, want string }{
		{"a Vpc's CIDR that is none", vpcYAML("x", "ten.zero"), "spec.cidr"},
		{"a Vpc's CIDR that is not canonical", vpcYAML("x", "10.0.0.5/16"), "canonical"},
		{"an IPv6 Vpc", vpcYAML("x", "fd00::/64"), "IPv6"},
		{"a Vpc too small", vpcYAML("x", "10.0.0.0/31"), "/29"},
		{"a Subnet's CIDR that is not canonical", subnetYAML("x", "main", "10.0.9.1/24"), "canonical"},
		{"a Subnet of /31", subnetYAML("x", "main", "10.0.9.0/31"), "/30"},
		{"a Subnet of /32", subnetYAML("x", "main", "10.0.9.0/32"), "/30"},
		{"an IPv6 Subnet", subnetYAML("x", "main", "fd00::/64"), "IPv6"},
		{"a CIDR changed after creation", subnetYAML("a", "main", "10.0.8.0/24"), "cannot be changed"},
		{"a Vpc's CIDR changed after creation", vpcYAML("main", "10.1.0.0/16"), "cannot be changed"},
		{"a Container's image reference that is none", containerYAML("x", "a", "Not A Reference!"), "spec.image"},
		{"a Container without a Subnet", containerYAML("x", `""`, "registry.mni.internal/mni/whoami"), "spec.subnet"},
		{"an unknown field", vpcYAML("x", "10.0.0.0/16") + "  colour: red\n", "colour"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := mniInput(t.Context(), c.document, "apply", "-n", namespace, "-f", "-")
			if err == nil {
				t.Fatalf("accepted: %s", out)
			}
			if !strings.Contains(out, c.want) {
				t.Errorf("the error does not say %q: %s", c.want, out)
			}
		})
	}
	var vpcs vpcv1.VpcList
	if err := kube.List(t.Context(), &vpcs, client.InNamespace(namespace)); err != nil || len(vpcs.Items) != 1 {
		t.Errorf("%d Vpcs, %v; want the one that was good", len(vpcs.Items), err)
	}
}

func TestBadInputThatOnlyTheCloudCanSeeIsAConditionNamingTheField(t *testing.T) {
	t.Parallel()
	namespace := tenant(t, "bad-condition")
	vpcWithSubnets(t, namespace)
	vpcWithSubnets(t, tenant(t, "bad-other"))
	first := &vpcv1.Subnet{ObjectMeta: objectMeta(namespace, "a")} // of two made in one second either may be the first
	eventually(t, "the first Subnet is Ready", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(first), first); err != nil {
			return err
		}
		if first.Status.Phase != status.Ready {
			return fmt.Errorf("phase %s", first.Status.Phase)
		}
		return nil
	})
	create(t,
		&vpcv1.Subnet{ObjectMeta: objectMeta("bad-other", "theirs"), Spec: vpcv1.SubnetSpec{VPC: "main", CIDR: "10.0.3.0/24"}},
		&vpcv1.Subnet{ObjectMeta: objectMeta(namespace, "overlaps"), Spec: vpcv1.SubnetSpec{VPC: "main", CIDR: "10.0.1.128/25"}},
		&vpcv1.Subnet{ObjectMeta: objectMeta(namespace, "outside"), Spec: vpcv1.SubnetSpec{VPC: "main", CIDR: "10.9.0.0/24"}},
		shell(namespace, "unknown-subnet", "nowhere", ""),
		shell(namespace, "others-subnet", "theirs", ""),
	)
	missing := shell(namespace, "missing-image", "a", "")
	missing.Spec.Image = registryName + "/mni/no-such-image:1"
	create(t, missing)

	for name, words := range map[string][]string{"overlaps": {"cidr", `"a"`}, "outside": {"cidr", "10.0.0.0/16"}} {
		subnet := &vpcv1.Subnet{ObjectMeta: objectMeta(namespace, name)}
		notReady(t, subnet, &subnet.Status.Conditions, words...)
	}
	for name, words := range map[string][]string{
		"unknown-subnet": {"subnet", `"nowhere"`}, "others-subnet": {"subnet", `"theirs"`}, "missing-image": {"image", "no-such-image"},
	} {
		container := &ctrv1.Container{ObjectMeta: objectMeta(namespace, name)}
		notReady(t, container, &container.Status.Conditions, words...)
	}
	interfaces, err := kubectl(t.Context(), "get", "pods", "-n", namespace, "-o", "name")
	if err != nil || strings.TrimSpace(interfaces) == "" {
		t.Fatalf("%v: %s", err, interfaces)
	}
	for _, line := range strings.Fields(interfaces) {
		if !strings.Contains(line, "missing-image") {
			t.Errorf("a half-made %s", line)
		}
	}
}

func TestReservedRangesAreRefused(t *testing.T) {
	t.Parallel()
	namespace := tenant(t, "bad-reserved")
	for _, cidr := range []string{"198.18.0.0/16", "198.19.7.0/24", "198.16.0.0/12", "169.254.0.0/16", "192.0.2.0/24", "127.0.0.0/8", "224.0.0.0/8"} {
		out, err := mniInput(t.Context(), vpcYAML("reserved", cidr), "apply", "-n", namespace, "-f", "-")
		if err != nil {
			if !strings.Contains(out, "cidr") || !strings.Contains(out, "reserved") {
				t.Errorf("%s: the error does not say that cidr meets a reserved range: %s", cidr, out)
			}
			continue
		}
		vpc := &vpcv1.Vpc{ObjectMeta: objectMeta(namespace, "reserved")}
		notReady(t, vpc, &vpc.Status.Conditions, "cidr", "reserved")
		if err := kube.Delete(t.Context(), vpc); err != nil {
			t.Fatal(err)
		}
		gone(t, vpc)
	}
}

func TestAHundredContainersInASlash28(t *testing.T) {
	namespace := tenant(t, "crowd")
	create(t,
		&vpcv1.Vpc{ObjectMeta: objectMeta(namespace, "main"), Spec: vpcv1.VpcSpec{CIDR: "10.0.0.0/16"}},
		&vpcv1.Subnet{ObjectMeta: objectMeta(namespace, "tiny"), Spec: vpcv1.SubnetSpec{VPC: "main", CIDR: "10.0.0.0/28"}},
	)
	for i := range 100 {
		create(t, shell(namespace, fmt.Sprintf("c%03d", i), "tiny", ""))
	}
	const room = 13 // 16 less the network, gateway and broadcast addresses
	count := func(ctx context.Context) (withAddress map[string]string, exhausted int, err error) {
		var list ctrv1.ContainerList
		if err := kube.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return nil, 0, err
		}
		withAddress = map[string]string{}
		for _, c := range list.Items {
			condition := meta.FindStatusCondition(c.Status.Conditions, status.ConditionReady)
			switch {
			case c.Status.Address != "":
				if other := withAddress[c.Status.Address]; other != "" {
					t.Errorf("%s is given to %s and %s", c.Status.Address, other, c.Name)
				}
				withAddress[c.Status.Address] = c.Name
			case condition != nil && condition.Reason == "AddressesExhausted":
				exhausted++
			}
		}
		return withAddress, exhausted, nil
	}
	var holders map[string]string
	eventually(t, "13 have addresses and 87 say why they have none", func(ctx context.Context) error {
		withAddress, exhausted, err := count(ctx)
		holders = withAddress
		if err != nil {
			return err
		}
		if len(withAddress) != room || exhausted != 100-room {
			return fmt.Errorf("%d with an address, %d exhausted", len(withAddress), exhausted)
		}
		return nil
	})
	for address, name := range holders { // one goes, and another gets its address
		if err := kube.Delete(t.Context(), &ctrv1.Container{ObjectMeta: objectMeta(namespace, name)}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another has the freed address", func(ctx context.Context) error {
			withAddress, _, err := count(ctx)
			if err != nil {
				return err
			}
			if now := withAddress[address]; now == "" || now == name {
				return fmt.Errorf("%s is %q's", address, now)
			}
			return nil
		})
		break
	}
}

// notReady waits until an object's Ready condition is False and its message contains every word.
func notReady(t *testing.T, object client.Object, conditions *[]metav1.Condition, words ...string) {
	t.Helper()
	eventually(t, object.GetName()+" says what is wrong", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(*conditions, status.ConditionReady)
		if condition == nil || condition.Status != metav1.ConditionFalse {
			return fmt.Errorf("Ready is %+v", condition)
		}
		for _, word := range words {
			if !strings.Contains(condition.Message, word) {
				return fmt.Errorf("%s: %q does not say %q", condition.Reason, condition.Message, word)
			}
		}
		return nil
	})
}

// gone waits until an object is.
func gone(t *testing.T, object client.Object) {
	t.Helper()
	eventually(t, object.GetName()+" is gone", func(ctx context.Context) error {
		err := kube.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil {
			return fmt.Errorf("it is there, finalizers %v", object.GetFinalizers())
		}
		return client.IgnoreNotFound(err)
	})
}
