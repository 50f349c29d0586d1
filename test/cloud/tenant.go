package cloud

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Tenant is a namespace with a Vpc 10.0.0.0/16, two Subnets, a server on each node and a shell.
type Tenant struct {
	Cloud Cloud
	Name  string
	// Outside gives the servers FloatingIPs, and the shell a NATGateway to go out by.
	Outside bool
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

const publishedManifest = `
---
apiVersion: vpc.mnicloud.jp/v1alpha1
kind: ExternalIP
metadata: {name: %[2]s, namespace: %[1]s}
---
apiVersion: vpc.mnicloud.jp/v1alpha1
kind: FloatingIP
metadata: {name: %[2]s, namespace: %[1]s}
spec: {externalIP: %[2]s, target: {type: containers, name: %[2]s}}
`

const outwardManifest = `
---
apiVersion: vpc.mnicloud.jp/v1alpha1
kind: ExternalIP
metadata: {name: nat, namespace: %[1]s}
---
apiVersion: vpc.mnicloud.jp/v1alpha1
kind: NATGateway
metadata: {name: out, namespace: %[1]s}
spec: {vpc: main, externalIPs: [nat]}
`

// Create declares the tenant.
func (t Tenant) Create(ctx context.Context) error {
	manifest := fmt.Sprintf(tenantManifest, t.Name, Whoami, Busybox)
	if t.Outside {
		for _, server := range t.Servers() {
			manifest += fmt.Sprintf(publishedManifest, t.Name, server)
		}
		manifest += fmt.Sprintf(outwardManifest, t.Name)
	}
	_, err := t.Cloud.MniInput(ctx, manifest, "apply", "-f", "-")
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
	names := []string{
		"vpcs.vpc.mnicloud.jp/main", "subnets.vpc.mnicloud.jp/a", "subnets.vpc.mnicloud.jp/b", "containers.ctr.mnicloud.jp/shell",
		"containers.ctr.mnicloud.jp/" + t.Servers()[0], "containers.ctr.mnicloud.jp/" + t.Servers()[1], "pods/" + t.Servers()[1],
	}
	if t.Outside {
		names = append(names, "externalips.vpc.mnicloud.jp/nat", "natgateways.vpc.mnicloud.jp/out")
		for _, server := range t.Servers() {
			names = append(names, "externalips.vpc.mnicloud.jp/"+server, "floatingips.vpc.mnicloud.jp/"+server)
		}
	}
	for _, named := range names {
		objects = append(objects, []string{"-n", t.Name, named})
	}
	return objects
}

// Servers are the names of the tenant's servers. Each answers with its own name, which no other tenant has.
func (t Tenant) Servers() []string { return []string{t.Name + "-1", t.Name + "-2"} }

// Answers returns nil when each server is reached from the tenant's shell and answers with its own name; by its external address, too, from there and
// from the machine, when it has one.
func (t Tenant) Answers(ctx context.Context) error {
	for _, server := range t.Servers() {
		address, err := t.address(ctx, "containers.ctr.mnicloud.jp", server, "address")
		if err != nil {
			return err
		}
		if err := t.fromShell(ctx, server, address); err != nil {
			return err
		}
		if !t.Outside {
			continue
		}
		if address, err = t.address(ctx, "floatingips.vpc.mnicloud.jp", server, "externalAddress"); err != nil {
			return err
		}
		if err := t.fromMachine(ctx, server, address); err != nil {
			return err
		}
		if err := t.fromShell(ctx, server, address); err != nil {
			return err
		}
	}
	return nil
}

// address is a field of an object's status.
func (t Tenant) address(ctx context.Context, kind, name, field string) (string, error) {
	address, err := t.Cloud.Mni(ctx, "get", kind, name, "-n", t.Name, "-o", "jsonpath={.status."+field+"}")
	if err == nil && address == "" {
		err = fmt.Errorf("%s %s has no address yet", kind, name)
	}
	return address, err
}

// fromShell returns nil when a server answers the tenant's shell at an address.
func (t Tenant) fromShell(ctx context.Context, server, address string) error {
	answer, err := t.Cloud.Mni(ctx, "exec", "shell", "-n", t.Name, "--", "timeout", "5", "wget", "-q", "-O", "-", "http://"+address+":8080/")
	if err != nil {
		return err
	}
	return isNamed(answer, server, address)
}

// fromMachine returns nil when a server answers this machine at an address.
func (t Tenant) fromMachine(ctx context.Context, server, address string) error {
	c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+":8080/", http.NoBody)
	if err != nil {
		return err
	}
	response, err := c.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	return isNamed(string(answer), server, address)
}

func isNamed(answer, server, address string) error {
	if !strings.Contains(answer, "name: "+server+"\n") {
		return fmt.Errorf("%s at %s: another answered: %s", server, address, answer)
	}
	return nil
}

// AnswersWithin waits until Answers returns nil.
func (t Tenant) AnswersWithin(ctx context.Context, within time.Duration) error {
	return Eventually(ctx, within, "the servers of tenant "+t.Name+" answer", t.Answers)
}
