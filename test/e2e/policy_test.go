//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

// echoIn answers with what it is sent, on a port of a Container.
func echoIn(t *testing.T, container *ctrv1.Container, port int) {
	t.Helper()
	var listener net.Listener
	err := netns(t, container).Do(func(ns.NetNS) error {
		var err error
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", fmt.Sprintf(":%d", port))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
}

// dialFrom connects from a Container.
func dialFrom(t *testing.T, container *ctrv1.Container, address string, port int) (conn net.Conn, err error) {
	t.Helper()
	err = netns(t, container).Do(func(ns.NetNS) error {
		var err error
		conn, err = net.DialTimeout("tcp4", fmt.Sprintf("%s:%d", address, port), time.Second)
		return err
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, nil
}

// opened waits until a connection opens.
func opened(t *testing.T, from *ctrv1.Container, address string, port int) (conn net.Conn) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s connects to port %d", from.Name, port), func(context.Context) (err error) {
		conn, err = dialFrom(t, from, address, port)
		return err
	})
	return conn
}

// echoes tells whether what is said comes back within a time.
func echoes(conn net.Conn, within time.Duration) error {
	said := time.Now().Format(time.RFC3339Nano)
	_ = conn.SetDeadline(time.Now().Add(within))
	if _, err := io.WriteString(conn, said); err != nil {
		return err
	}
	heard := make([]byte, len(said))
	if _, err := io.ReadFull(conn, heard); err != nil {
		return err
	}
	if string(heard) != said {
		return fmt.Errorf("said %q, heard %q", said, heard)
	}
	return nil
}

// change patches an object.
func change(t *testing.T, object client.Object, what func()) {
	t.Helper()
	base := object.DeepCopyObject().(client.Object)
	what()
	if err := kube.Patch(t.Context(), object, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
}

func tcpRule(port int32, cidr string) vpcv1.SecurityGroupRule {
	return vpcv1.SecurityGroupRule{Protocol: vpcv1.RuleTCP, Port: &port, CIDR: &cidr}
}

func TestASecurityGroupOpensOnePortAndIsChangedUnderRunningConnections(t *testing.T) {
	namespace := tenant(t, "groups")
	vpcWithSubnets(t, namespace)
	server, friend, stranger := whoami(namespace, "server", "b", nodes[1]), shell(namespace, "friend", "a", nodes[0]), shell(namespace, "stranger", "a", nodes[1])
	group := &vpcv1.SecurityGroup{ObjectMeta: objectMeta(namespace, "web"), Spec: vpcv1.SecurityGroupSpec{
		Ingress: []vpcv1.SecurityGroupRule{tcpRule(8080, "10.0.0.0/16")},
	}}
	create(t, group, server, friend, stranger)
	ready(t, server, friend, stranger)
	address := server.Status.Address
	echoIn(t, server, 9090)

	// Without a group everything is open.
	_ = echoes(opened(t, stranger, address, 9090), patience)
	eventually(t, "the server answers", func(ctx context.Context) error { return checkIdentity(ctx, friend, server) })

	change(t, server, func() { server.Spec.SecurityGroups = []string{"web"} })
	eventually(t, "port 9090 is closed", func(context.Context) error {
		if conn, err := dialFrom(t, friend, address, 9090); err == nil {
			_ = conn.Close()
			return errors.New("still open")
		}
		return nil
	})
	for _, from := range []*ctrv1.Container{friend, stranger} {
		eventually(t, "port 8080 is open", func(ctx context.Context) error { return checkIdentity(ctx, from, server) })
	}
	if out, err := in(t.Context(), friend, "ping", "-c", "1", "-W", "1", address); err == nil {
		t.Errorf("ping passes, which no rule allows:\n%s", out)
	}

	change(t, group, func() { group.Spec.Ingress = append(group.Spec.Ingress, tcpRule(9090, "10.0.0.0/16")) })
	stays, goes := opened(t, friend, address, 9090), opened(t, stranger, address, 9090)
	for _, conn := range []net.Conn{stays, goes} {
		if err := echoes(conn, patience); err != nil {
			t.Fatal(err)
		}
	}
	running := &ctrv1.Container{}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(server), running); err != nil {
		t.Fatal(err)
	}

	// The stranger is cut within a second; the friend does not notice.
	var lost error
	done, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for lost == nil {
			select {
			case <-stop:
				return
			default:
				lost = echoes(stays, 5*time.Second)
			}
		}
	}()
	begin := time.Now()
	change(t, group, func() { group.Spec.Ingress[1] = tcpRule(9090, friend.Status.Address+"/32") })
	for echoes(goes, 100*time.Millisecond) == nil {
		if time.Since(begin) > 10*time.Second {
			t.Fatal("the stranger's connection was not cut")
		}
	}
	took := time.Since(begin)
	t.Logf("cut %v after the change was asked for", took)
	if took > time.Second {
		t.Errorf("it took %v to cut a connection", took)
	}
	close(stop)
	<-done
	if lost != nil {
		t.Errorf("an allowed connection was disturbed: %v", lost)
	}
	if running.Status.Restarts != 0 || running.Status.Pod == "" {
		t.Errorf("the server's Pod did not stay: %+v", running.Status)
	}

	t.Run("a group that is not there closes the Container and is named", func(t *testing.T) {
		change(t, server, func() { server.Spec.SecurityGroups = []string{"web", "lost"} })
		eventually(t, "the condition names it", func(ctx context.Context) error {
			if err := kube.Get(ctx, client.ObjectKeyFromObject(server), server); err != nil {
				return err
			}
			for _, c := range server.Status.Conditions {
				if c.Reason == "SecurityGroupNotFound" && strings.Contains(c.Message, "lost") {
					return nil
				}
			}
			return fmt.Errorf("conditions: %v", server.Status.Conditions)
		})
		eventually(t, "even the friend is cut", func(context.Context) error {
			if echoes(stays, 100*time.Millisecond) == nil {
				return errors.New("still open")
			}
			return nil
		})
	})
}

func TestNetworkPoliciesOfOrdinaryPods(t *testing.T) {
	t.Parallel()
	namespace := tenant(t, "netpol")
	server, near, far := serverPod(namespace, "server", nodes[0]), shellPod(namespace, "near", nodes[0]), shellPod(namespace, "far", nodes[1])
	near.Labels, far.Labels = map[string]string{"role": "near"}, map[string]string{"role": "far"}
	create(t, server, near, far)
	running(t, server, near, far)
	asks := func(ctx context.Context, from string) error {
		return answers("server")(kubectl(ctx, "exec", "-n", namespace, from, "--", "timeout", "2", "wget", "-q", "-O", "-", "http://"+server.Status.PodIP+":8080/"))
	}
	open := func(from string) {
		t.Helper()
		eventually(t, from+" reaches the server", func(ctx context.Context) error { return asks(ctx, from) })
	}
	shut := func(from string) {
		t.Helper()
		eventually(t, from+" does not reach the server", func(ctx context.Context) error {
			if asks(ctx, from) == nil {
				return errors.New("it does")
			}
			return nil
		})
	}
	open("near")
	open("far")
	create(t, &networkingv1.NetworkPolicy{ObjectMeta: objectMeta(namespace, "default-deny"), Spec: networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
	}})
	shut("near")
	shut("far")
	create(t, &networkingv1.NetworkPolicy{ObjectMeta: objectMeta(namespace, "allow-far"), Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: server.Labels},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
			{PodSelector: &metav1.LabelSelector{MatchLabels: far.Labels}},
		}}},
	}})
	open("far")
	shut("near")
	change(t, near, func() { near.Labels = far.Labels })
	open("near")
}

func TestTheExampleOfSecurityGroups(t *testing.T) {
	t.Parallel()
	mustMni(t, "apply", "-f", filepath.Join(apiserver.Root(), "examples", "securitygroup"))
	t.Cleanup(func() {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
		if err := kube.Delete(context.Background(), namespace); err != nil {
			t.Errorf("delete namespace shop: %v", err)
		}
	})
	web, db := &ctrv1.Container{ObjectMeta: objectMeta("shop", "web-0")}, &ctrv1.Container{ObjectMeta: objectMeta("shop", "db-0")}
	ready(t, web, db)
	_ = opened(t, web, db.Status.Address, 8080)
	if conn, err := dialFrom(t, db, web.Status.Address, 8080); err == nil {
		_ = conn.Close()
		t.Error("the database opens a connection, which its egress rules do not allow")
	}
}
