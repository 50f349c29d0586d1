//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/mnicloud/mnicloud/test/cloud"
	"github.com/mnicloud/mnicloud/test/seeds"
)

// person is somebody with settings of its own on this machine, who reaches the cloud by `mni login` only.
type person struct {
	t    *testing.T
	home string
}

func newPerson(t *testing.T) *person {
	t.Helper()
	return &person{t, t.TempDir()}
}

// try runs a program under bin/ as the person and returns what it printed.
func (p *person) try(ctx context.Context, input, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, program), args...)
	cmd.Env = []string{"HOME=" + p.home, "XDG_CONFIG_HOME=" + filepath.Join(p.home, "settings"), "PATH=" + os.Getenv("PATH")}
	if program == "mni-kube" {
		cmd.Env = append(cmd.Env, "KUBECONFIG="+p.kubeconfig())
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &out
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, out.String())
	}
	return out.String(), err
}

func (p *person) kubeconfig() string { return filepath.Join(p.home, "kubeconfig") }

// mni runs mni, which has to succeed.
func (p *person) mni(input string, args ...string) string {
	p.t.Helper()
	out, err := p.try(p.t.Context(), input, "mni", args...)
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// refused runs mni, which has to fail with these words.
func (p *person) refused(words, input string, args ...string) {
	p.t.Helper()
	out, err := p.try(p.t.Context(), input, "mni", args...)
	if err == nil || !strings.Contains(out, words) {
		p.t.Fatalf("mni %s: %v; it should be refused with %q:\n%s", strings.Join(args, " "), err, words, out)
	}
}

// kubectl runs upstream's kubectl with what `mni kubeconfig` wrote; it has to succeed.
func (p *person) kubectl(input string, args ...string) string {
	p.t.Helper()
	out, err := p.try(p.t.Context(), input, "mni-kube", append([]string{"kubectl"}, args...)...)
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// administrator is logged in with the login that `mni up` printed.
func administrator(t *testing.T) *person {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("/var/lib/mni", instance, "administrator.json"))
	if err != nil {
		t.Fatal(err)
	}
	var login struct{ User, Password string }
	if err := json.Unmarshal(content, &login); err != nil {
		t.Fatal(err)
	}
	p := newPerson(t)
	p.mni(login.Password+"\n", "login", "--instance", instance, "--user", login.User, "--password-stdin")
	return p
}

// enter logs the person in as somebody who does not own the machine does: by the address and the authority that the owner gave away.
func (p *person) enter(user, password string) (string, error) {
	return p.login(password, "--user", user, "--password-stdin")
}

// login is `mni login` from afar, with a secret on standard input.
func (p *person) login(secret string, how ...string) (string, error) {
	gateway, err := clientcmd.BuildConfigFromFlags("", filepath.Join("/var/lib/mni", instance, "gateway.kubeconfig"))
	if err != nil {
		p.t.Fatal(err)
	}
	args := []string{"login", "--server", gateway.Host, "--ca-file", filepath.Join("/var/lib/mni", instance, "pki", "ca.crt")}
	return p.try(p.t.Context(), secret+"\n", "mni", append(args, how...)...)
}

const gatewayPeople = `
apiVersion: auth.mnicloud.jp/v1alpha1
kind: User
metadata: {name: gw-ada}
spec: {password: "first of ada", mustChangePassword: true}
---
apiVersion: auth.mnicloud.jp/v1alpha1
kind: User
metadata: {name: gw-eve}
spec: {password: "first of eve"}
---
apiVersion: auth.mnicloud.jp/v1alpha1
kind: Tenant
metadata: {name: tenant-a}
spec: {members: [{user: gw-ada, role: owner}]}
---
apiVersion: auth.mnicloud.jp/v1alpha1
kind: Tenant
metadata: {name: gw-blue}
spec: {members: [{user: gw-eve, role: owner}]}
`

// gatewayDocuments are both documents of the seeds, and what the Vpc needs to have a workload.
const gatewayDocuments = seeds.Vpc + `---
apiVersion: vpc/v1alpha
kind: Subnet
metadata: {name: front, namespace: tenant-a}
spec: {vpc: demo-vpc, cidr: 10.42.1.0/24}
---
apiVersion: ctr/v1alpha
kind: Container
metadata: {name: web, namespace: tenant-a}
spec: {subnet: front, image: registry.mni.internal/mni/busybox:latest, command: [sh, -c, "echo hello from web; sleep 1000000"]}
---
` + seeds.FloatingIP

func TestUsersDoEverythingThroughTheGatewayAndSeeTheirOwnTenantsOnly(t *testing.T) {
	t.Parallel()
	admin := administrator(t)
	admin.mni(gatewayPeople, "apply", "-f", "-")
	t.Cleanup(func() {
		if out, err := admin.try(context.Background(), gatewayPeople, "mni", "delete", "-f", "-", "--timeout", "2m"); err != nil {
			t.Errorf("delete the users and tenants: %v\n%s", err, out)
		}
	})
	admin.mni("", "wait", "tenant/tenant-a", "tenant/gw-blue", "user/gw-ada", "user/gw-eve", "--timeout", "1m")

	ada, eve := newPerson(t), newPerson(t)
	if out, err := ada.enter("gw-ada", "first of ada"); err == nil || !strings.Contains(out, "must be changed") {
		t.Fatalf("the first login of gw-ada: %v\n%s", err, out)
	}
	ada.refused("the password must be changed before anything else", "", "get", "vpc", "-t", "tenant-a")
	ada.mni("first of ada\nsecond of ada\n", "password", "--password-stdin")
	if out, err := eve.enter("gw-eve", "first of eve"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "gw-eve, an owner, makes gw-ada a viewer", func(ctx context.Context) error {
		_, err := eve.try(ctx, "", "mni", "tenant", "add", "gw-blue", "gw-ada", "--role", "viewer")
		return err
	})
	eventually(t, "gw-ada and gw-eve are members", func(ctx context.Context) error {
		for p, tenants := range map[*person][]string{ada: {"tenant-a", "gw-blue"}, eve: {"gw-blue"}} {
			out, err := p.try(ctx, "", "mni", "whoami", "-o", "json")
			for _, tenant := range tenants {
				if err != nil || !strings.Contains(out, `"name": "`+tenant+`"`) {
					return fmt.Errorf("whoami: %w: %s", err, out)
				}
			}
		}
		return nil
	})

	ada.refused("choose one with --tenant", "", "get", "vpc") // which of the two?
	ada.mni("", "tenant", "use", "tenant-a")

	if out := ada.mni(gatewayDocuments, "apply", "-f", "-"); out != "vpc/demo-vpc created\nsubnet/front created\ncontainer/web created\nfloatingip/my-fip created\n" {
		t.Errorf("mni apply: %s", out)
	}
	ada.mni("", "wait", "container", "web", "--timeout", "2m")
	ada.contains("hello from web", ada.mni("", "logs", "web"))
	ada.contains("web", ada.mni("", "exec", "web", "--", "hostname"))
	ada.contains("10.42.0.0/16", ada.mni("", "get", "vpc"))
	ada.contains("Tenant A Shared VPC", ada.mni("", "get", "vpcs.v1alpha.vpc", "demo-vpc", "-o", "yaml"))
	if out := ada.mni("", "get", "tenants", "-o", "name"); out != "tenant.auth.mnicloud.jp/gw-blue\ntenant.auth.mnicloud.jp/tenant-a\n" {
		t.Errorf("the tenants that gw-ada sees: %s", out)
	}

	// Another tenant has a Vpc of the same name and CIDR. There gw-ada may look, and no more.
	eve.mni(strings.ReplaceAll(seeds.Vpc, "tenant-a", "gw-blue"), "apply", "-f", "-")
	ada.mni("", "tenant", "use", "gw-blue")
	ada.contains("10.42.0.0/16", ada.mni("", "get", "vpc", "demo-vpc"))
	ada.contains("gw-blue", ada.mni("", "whoami"))
	ada.refused("forbidden", "y\n", "delete", "vpc", "demo-vpc", "--yes")
	ada.refused("forbidden", strings.ReplaceAll(gatewayDocuments, "tenant-a", "gw-blue"), "apply", "-f", "-")
	if out := ada.mni("", "get", "containers", "-o", "name"); out != "" {
		t.Errorf("gw-ada sees in gw-blue: %s", out)
	}
	ada.mni("", "tenant", "use", "tenant-a")

	ada.mni("", "kubeconfig", ada.kubeconfig())
	ada.contains("demo-vpc", ada.kubectl("", "get", "vpc", "-o", "name"))
	ada.contains("subnet.vpc/back created", ada.kubectl("{apiVersion: vpc/v1alpha, kind: Subnet, metadata: {name: back}, spec: {vpc: demo-vpc, cidr: 10.42.2.0/24}}", "apply", "-f", "-"))
	ada.contains("hello from web", ada.kubectl("", "logs", "web"))
	ada.contains("web", ada.kubectl("", "exec", "web", "--", "hostname"))

	eventually(t, "gw-ada reads who did what", func(ctx context.Context) error {
		out, err := ada.try(ctx, "", "mni", "audit", "-o", "wide")
		for _, told := range []string{`gw-ada +apply +vpcs +demo-vpc +ok`, `gw-ada +apply +containers +web +ok`, `gw-ada +exec +pods +web\S* +ok`, `gw-ada +log +pods +web\S* +ok`, `session [0-9a-z]+`} {
			if err == nil && !regexp.MustCompile(told).MatchString(out) {
				err = fmt.Errorf("%s is not in:\n%s", told, out)
			}
		}
		return err
	})
	admin.contains("gw-ada", admin.mni("", "audit", "-t", "tenant-a", "--verb", "apply"))

	eve.mni("", "kubeconfig", eve.kubeconfig())
	for _, kind := range []string{"vpc", "subnet", "container", "pods", "events"} {
		if out := eve.mni("", "get", kind, "-A", "-o", "jsonpath={.items[*].metadata.namespace}"); strings.Trim(strings.ReplaceAll(out, "gw-blue", ""), " \n") != "" {
			t.Errorf("gw-eve sees %ss of: %s", kind, out)
		}
	}
	for _, args := range [][]string{{"get", "vpc"}, {"logs", "web"}, {"exec", "web", "--", "hostname"}, {"delete", "vpc", "demo-vpc"}, {"describe", "container", "web"}, {"audit"}} {
		if args[0] == "exec" {
			args = append([]string{"exec", "--tenant", "tenant-a"}, args[1:]...)
		} else {
			args = append(args, "-t", "tenant-a")
		}
		eve.refused(`there is no tenant "tenant-a" that you are a member of`, "", args...)
	}
	eve.refused(`there is no tenant "tenant-a" that you are a member of`, gatewayDocuments, "apply", "-f", "-")
	if out, err := eve.try(t.Context(), "", "mni-kube", "kubectl", "get", "vpc", "-n", "tenant-a"); err == nil {
		t.Errorf("gw-eve's kubectl gets: %s", out)
	}

	here := cloud.Cloud{Instance: instance}
	if err := here.Kill(t.Context(), "mni-gateway"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the gateway runs again", func(ctx context.Context) error {
		parts, err := here.Parts(ctx)
		for _, part := range parts {
			if part.Name == "mni-gateway" && part.Restarts > 0 && part.State == "Ready" {
				_, err := ada.try(ctx, "", "mni", "get", "vpc", "demo-vpc")
				return err
			}
		}
		return fmt.Errorf("parts: %w: %+v", err, parts)
	})

	ada.mni("", "delete", "all", "--all", "--timeout", "2m")
	ada.mni("", "logout")
	ada.refused("not logged in", "", "whoami")
	if out, err := ada.try(t.Context(), "", "mni-kube", "kubectl", "get", "vpc"); err == nil {
		t.Errorf("kubectl after the logout: %s", out)
	}
}

// contains fails the test when the text is not in what was printed.
func (p *person) contains(text, printed string) {
	p.t.Helper()
	if !strings.Contains(printed, text) {
		p.t.Errorf("%q is not in what was printed:\n%s", text, printed)
	}
}
