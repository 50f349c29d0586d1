package cloud

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Tenant is a namespace with a Vpc 10.0.0.0/16, two Subnets, a server on each node and a shell.
type Tenant struct {
	Cloud Cloud
	Name  string
}

const tenantManifest = `
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: vpc.mnicloud.jp/v1alpha1
kind: Vpc
metadata: {name: main, namespace: %[1]s}
spec: {cidr: 10.0.0.0/16}
---
apiVersion: vpc.mnicloud.jp/v1alpha1
kind: Subnet
metadata: {name: a, namespace: %[1]s}
spec: {vpc: main, cidr: 10.0.1.0/24}
---
apiVersion: vpc.mnicloud.jp/v1alpha1
kind: Subnet
metadata: {name: b, namespace: %[1]s}
spec: {vpc: main, cidr: 10.0.2.0/24}
---
apiVersion: ctr.mnicloud.jp/v1alpha1
kind: Container
metadata: {name: %[1]s-1, namespace: %[1]s}
spec: {subnet: a, node: node-1, image: "%[2]s"}
---
apiVersion: ctr.mnicloud.jp/v1alpha1
kind: Container
metadata: {name: %[1]s-2, namespace: %[1]s}
spec: {subnet: b, node: node-2, image: "%[2]s"}
---
apiVersion: ctr.mnicloud.jp/v1alpha1
kind: Container
metadata: {name: shell, namespace: %[1]s}
spec: {subnet: a, node: node-1, image: "%[3]s", command: [sleep, "1000000"]}
`

// Create declares the tenant.
func (t Tenant) Create(ctx context.Context) error {
	_, err := t.Cloud.MniInput(ctx, fmt.Sprintf(tenantManifest, t.Name, Whoami, Busybox), "apply", "-f", "-")
	return err
}

// Delete deletes the tenant with all in it, and returns when it is gone.
func (t Tenant) Delete(ctx context.Context) error {
	_, err := t.Cloud.Mni(ctx, "delete", "namespace", t.Name, "--timeout", "2m")
	return err
}

// Objects are all that Create made, and a server's Pod, each as arguments of kubectl delete.
func (t Tenant) Objects() [][]string {
	objects := [][]string{{"namespace", t.Name}}
	for _, named := range []string{
		"vpcs.vpc.mnicloud.jp/main", "subnets.vpc.mnicloud.jp/a", "subnets.vpc.mnicloud.jp/b", "containers.ctr.mnicloud.jp/shell",
		"containers.ctr.mnicloud.jp/" + t.Servers()[0], "containers.ctr.mnicloud.jp/" + t.Servers()[1], "pods/" + t.Servers()[1],
	} {
		objects = append(objects, []string{"-n", t.Name, named})
	}
	return objects
}

// Servers are the names of the tenant's servers. Each answers with its own name, which no other tenant has.
func (t Tenant) Servers() []string { return []string{t.Name + "-1", t.Name + "-2"} }

// Answers returns nil when each server is reached from the tenant's shell and answers with its own name.
func (t Tenant) Answers(ctx context.Context) error {
	for _, server := range t.Servers() {
		address, err := t.Cloud.Mni(ctx, "get", "container", server, "-n", t.Name, "-o", "jsonpath={.status.address}")
		if err != nil {
			return err
		}
		if address == "" {
			return fmt.Errorf("%s has no address yet", server)
		}
		answer, err := t.Cloud.Mni(ctx, "exec", "shell", "-n", t.Name, "--", "timeout", "5", "wget", "-q", "-O", "-", "http://"+address+":8080/")
		if err != nil {
			return err
		}
		if !strings.Contains(answer, "name: "+server+"\n") {
			return fmt.Errorf("%s at %s: another answered: %s", server, address, answer)
		}
	}
	return nil
}

// AnswersWithin waits until Answers returns nil.
func (t Tenant) AnswersWithin(ctx context.Context, within time.Duration) error {
	return Eventually(ctx, within, "the servers of tenant "+t.Name+" answer", t.Answers)
}
