package gateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/platform/audit"
)

// unanswered is the reason of an outcome that is not known: the client did not wait for the answer, or there was none.
const unanswered = "Unanswered"

// recorded is a request that leaves an entry in the audit trail of the tenant that it is about. A nil one leaves none.
type recorded struct {
	trail  *audit.Trail
	place  *audit.Place
	tenant audit.Tenant
	entry  audit.Entry
	// tenants tells whether it is about Tenants themselves: which of them, only the answer may say.
	tenants bool
}

// record takes room in the audit trail for a request that changes something, or that looks or reaches into a workload. What nobody could
// record is refused.
func (g *Gateway) record(r *http.Request, id *Identity, t *target, query url.Values) (*recorded, *problem) {
	own := t.ownOnly() && t.plural == "tenants"
	changes := t.verb != verbGet && t.verb != verbList && t.verb != verbWatch
	if g.config.Trail == nil || !changes && !t.stream() || t.tenant == "" && !own || dryRun(query["dryRun"]) && t.verb != verbDelete && t.verb != verbDeleteCollection {
		return nil, nil
	}
	e := &recorded{trail: g.config.Trail, tenants: own, tenant: audit.Tenant{UID: t.namespace, Name: t.tenant}, entry: audit.Entry{
		User: id.called(), Session: id.Session, Token: id.Token, Source: Source(r),
		Verb: t.verb, Group: t.Group, Resource: t.plural, Name: t.name,
	}}
	if own {
		e.tenant = audit.Tenant{UID: id.Tenants[t.name], Name: t.name}
	}
	switch mediaType, _ := contentType(r); {
	case t.stream():
		e.entry.Verb = t.subresource
	case t.subresource != "":
		e.entry.Resource += "/" + t.subresource
	case t.verb == verbPatch && mediaType == typeApply:
		e.entry.Verb = verbApply
	}
	var err error
	if e.place, err = g.config.Trail.Reserve(e.tenant.UID); errors.Is(err, audit.ErrFull) {
		return nil, unavailable("%s, and what you ask for is not done unrecorded; try again", err)
	}
	return e, nil
}

// Source is the address that a request's connection comes from. What headers say of others, anybody can write.
func Source(r *http.Request) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return from.Addr().Unmap().WithZone("").String()
}

// called is how an audit trail calls somebody: by the User's name, or, who is no User, as Kubernetes does, with names for namespaces.
func (id *Identity) called() string {
	if id.Name != "" {
		return id.Name
	}
	return id.toNames().Replace(strings.TrimPrefix(id.User, impersonated))
}

// dryRun tells whether the API server will take a request for a dry run. Other values than these it refuses.
func dryRun(values []string) bool {
	for _, v := range values {
		if v != metav1.DryRunAll {
			return false
		}
	}
	return len(values) > 0
}

// sends notes what of a request's body matters. A deletion is a dry run by its body if it has one, whatever its query says.
func (e *recorded) sends(t *target, body []byte, query url.Values) {
	switch {
	case e == nil:
	case t.verb == verbCreate && e.entry.Name == "":
		var object struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if json.Unmarshal(body, &object) == nil {
			e.named(object.Metadata.Name)
		}
	case t.verb == verbDelete || t.verb == verbDeleteCollection:
		options := metav1.DeleteOptions{DryRun: query["dryRun"]}
		if len(body) > 0 {
			options = metav1.DeleteOptions{}
			if err := json.Unmarshal(body, &options); err != nil {
				return
			}
		}
		if dryRun(options.DryRun) {
			e.place.Release()
		}
	}
}

func (e *recorded) named(name string) {
	e.entry.Name = name
	if e.tenants {
		e.tenant.Name = name
	}
}

// refused notes the outcome of a request that was refused.
func (e *recorded) refused(code int, reason metav1.StatusReason) {
	if e == nil {
		return
	}
	e.entry.Code, e.entry.Reason = code, string(reason)
	e.done()
}

// began notes that a stream has begun.
func (e *recorded) began(code int) {
	if e == nil {
		return
	}
	e.entry.Code = code
	e.done()
}

// answered notes the outcome that the API server's answer tells.
func (e *recorded) answered(a *answer) {
	if e == nil {
		return
	}
	var told struct {
		Kind     string   `json:"kind"`
		Metadata identity `json:"metadata"`
		Reason   string   `json:"reason"`
		Details  identity `json:"details"`
	}
	e.entry.Code = a.code
	switch err := json.Unmarshal(a.body, &told); {
	case err != nil: // the code is what is known
	case told.Kind == "Status":
		if a.code >= http.StatusBadRequest {
			e.entry.Reason = told.Reason
		}
		if e.entry.Name == "" {
			e.named(told.Details.Name)
		}
	case e.entry.Verb == verbDeleteCollection && e.tenants:
		e.each(a.body)
		return
	case e.entry.Verb != verbDeleteCollection:
		e.named(told.Metadata.Name)
		if e.tenants && e.tenant.UID == "" {
			e.tenant.UID = told.Metadata.UID
		}
	}
	e.done()
}

// identity is which object something is.
type identity struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// each leaves an entry in the trail of each Tenant that was deleted.
func (e *recorded) each(answer []byte) {
	var deleted struct {
		Items []struct {
			Metadata identity `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal(answer, &deleted); err != nil {
		deleted.Items = nil
	}
	for _, tenant := range deleted.Items {
		e.entry.Name = tenant.Metadata.Name
		e.trail.Record(audit.Tenant{UID: tenant.Metadata.UID, Name: tenant.Metadata.Name}, e.entry)
	}
	e.place.Release()
}

// done leaves the entry, unless that was done. A request about a Tenant that there is not, or that is not the caller's, leaves none.
func (e *recorded) done() {
	switch {
	case e == nil:
	case e.tenant.UID == "":
		e.place.Release()
	default:
		e.place.Record(e.tenant, e.entry)
	}
}

// end leaves the entry of a request of which nothing more is known.
func (e *recorded) end() {
	if e == nil {
		return
	}
	e.entry.Code, e.entry.Reason = 0, unanswered
	e.done()
}
