package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func (w *world) group(name, namespace string, ingress ...netv1.SecurityGroupRule) *netv1.SecurityGroup {
	w.t.Helper()
	g := &netv1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.SecurityGroupSpec{Namespace: namespace, Ingress: ingress}}
	require.NoError(w.t, w.Create(w.ctx, g))
	w.t.Cleanup(func() { _ = w.Delete(w.ctx, g) })
	return g
}

func TestAnInterfaceSaysWhichOfItsGroupsAreMissing(t *testing.T) {
	w := newWorld(t)
	a := w.namespace()
	w.group("web", a)
	w.group("foreign", "b")
	nic := &netv1.NetworkInterface{
		ObjectMeta: metav1.ObjectMeta{Name: "nic"},
		Spec:       netv1.NetworkInterfaceSpec{Subnet: netv1.DefaultSubnet, Namespace: a, Retain: true, SecurityGroups: []string{"web", "foreign", "later"}},
	}
	require.NoError(t, w.Create(w.ctx, nic))
	known := func() *metav1.Condition {
		require.NoError(t, w.Get(w.ctx, client.ObjectKeyFromObject(nic), nic))
		return meta.FindStatusCondition(nic.Status.Conditions, netv1.ConditionSecurityGroupsKnown)
	}
	w.eventually("it says what is missing", func() bool {
		c := known()
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == "SecurityGroupNotFound"
	})
	require.Contains(t, known().Message, "foreign, later")
	w.group("later", a)
	base := nic.DeepCopy()
	nic.Spec.SecurityGroups = []string{"web", "later"}
	require.NoError(t, w.Patch(w.ctx, nic, client.MergeFrom(base)))
	w.eventually("all are known", func() bool { c := known(); return c != nil && c.Status == metav1.ConditionTrue })
	base = nic.DeepCopy()
	nic.Spec.SecurityGroups = nil
	require.NoError(t, w.Patch(w.ctx, nic, client.MergeFrom(base)))
	w.eventually("it says nothing of groups", func() bool { return known() == nil })
}

func TestAGroupSaysWhichOfItsPeersAreMissing(t *testing.T) {
	w := newWorld(t)
	web := w.group("web", "a", netv1.SecurityGroupRule{SecurityGroup: ptr("db")}, netv1.SecurityGroupRule{SecurityGroup: ptr("web")})
	message := func() string {
		require.NoError(t, w.Get(w.ctx, client.ObjectKeyFromObject(web), web))
		return conditions.Message(web.Status.Conditions)
	}
	w.eventually("it names the missing group", func() bool {
		return message() == "rules name SecurityGroups that do not exist in namespace a, and allow nothing until they do: db"
	})
	db := w.group("db", "a")
	w.eventually("it is Ready", func() bool { message(); return conditions.IsReady(web.Status.Conditions, web.Generation) })
	require.NoError(t, w.Delete(w.ctx, db))
	w.eventually("it is not any more", func() bool { message(); return !conditions.IsReady(web.Status.Conditions, web.Generation) })
}

func TestRulesThatMakeNoSenseAreRefused(t *testing.T) {
	w := idleWorld(t)
	n := func(i int32) *int32 { return &i }
	cidr := ptr("10.0.0.0/8")
	for message, rule := range map[string]netv1.SecurityGroupRule{
		"exactly one of cidr and securityGroup": {CIDR: cidr, SecurityGroup: ptr("a")},
		"0.0.0.0/0 is everyone":                 {},
		"port is only for":                      {Protocol: netv1.RuleICMP, Port: n(80), CIDR: cidr},
		"endPort needs port":                    {Protocol: netv1.RuleTCP, EndPort: n(80), CIDR: cidr},
		"must not be less than port":            {Protocol: netv1.RuleTCP, Port: n(81), EndPort: n(80), CIDR: cidr},
		"less than or equal to 65535":           {Protocol: netv1.RuleTCP, Port: n(65536), CIDR: cidr},
		"icmpType is only for":                  {Protocol: netv1.RuleTCP, ICMPType: n(8), CIDR: cidr},
		"icmpCode needs icmpType":               {Protocol: netv1.RuleICMP, ICMPCode: n(0), CIDR: cidr},
		"Unsupported value":                     {Protocol: "SCTP", CIDR: cidr},
		"must be canonical":                     {CIDR: ptr("10.0.0.1/8")},
		"IPv6 is not supported":                 {CIDR: ptr("fd00::/8")},
		"must be an address range":              {CIDR: ptr("everyone")},
	} {
		g := &netv1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: netv1.SecurityGroupSpec{Namespace: "a", Egress: []netv1.SecurityGroupRule{rule}}}
		require.ErrorContains(t, w.Create(w.ctx, g), message)
	}
	many := &netv1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: netv1.SecurityGroupSpec{Namespace: "a", Ingress: make([]netv1.SecurityGroupRule, 201)}}
	for i := range many.Spec.Ingress {
		many.Spec.Ingress[i] = netv1.SecurityGroupRule{CIDR: cidr}
	}
	require.ErrorContains(t, w.Create(w.ctx, many), "must have at most 200 items")
}
