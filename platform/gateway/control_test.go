package gateway_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
)

// attachments are the subresources that change to another protocol.
var attachments = []string{"exec", "attach", "portforward"}

// control makes, for every kind, verb and subresource that there is, the request of somebody who may, and returns what is wrong with the
// first that does not succeed: a request that nobody can make is no test of who must not.
func (f *fuzzer) control(rng *rand.Rand) error {
	for _, k := range f.kinds {
		for _, verb := range k.verbs {
			if err := f.controlOf(rng, k, verb, ""); err != nil {
				return err
			}
		}
		for _, sub := range slices.Sorted(maps.Keys(k.subresources)) {
			for _, verb := range k.subresources[sub] {
				if err := f.controlOf(rng, k, verb, sub); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (f *fuzzer) controlOf(rng *rand.Rand, k *attackable, verb, sub string) error {
	a := &attack{
		user: "alice", verb: verb, sub: sub, kind: k, tenant: "acme", inPath: "acme", name: "web",
		query: url.Values{}, header: http.Header{"Accept": {"application/json"}},
	}
	if !k.namespaced || (sub == "status" || slices.Contains(adminsWrite, k.plural)) && !slices.Contains(reading, verb) {
		a.user = "root"
	}
	switch k.plural {
	case "users":
		a.name = "alice"
	case "tenants":
		a.name = "acme"
	}
	a.write(rng, f)
	if verb == documents {
		a.body = a.many(rng)
	}
	switch {
	case slices.Contains(attachments, sub):
		return f.reaches(a)
	case f.may(a) == harmless:
		return f.letThrough(a)
	}
	if err := f.attempt(a); err != nil {
		return err
	}
	if !f.controls[a.what()] {
		return fmt.Errorf("%s may %s, but that was not its control", a.user, a.what())
	}
	return nil
}

// watchAll watches every kind for a moment, as somebody who sees all.
func (f *fuzzer) watchAll() error {
	for _, k := range f.kinds {
		if slices.Contains(k.verbs, "watch") {
			a := &attack{user: "root", verb: "watch", kind: k, tenant: "acme", inPath: "acme", query: url.Values{}, header: http.Header{"Accept": {"application/json"}}}
			if err := f.attempt(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// reaches makes a request that must come to the node where the workload runs.
func (f *fuzzer) reaches(a *attack) error {
	a.query.Set("stdout", "true")
	if a.sub == "portforward" {
		a.query.Del("stdout")
	}
	before := f.asked.Load()
	recorder := httptest.NewRecorder()
	f.handler.ServeHTTP(recorder, a.request(f.ctx))
	if f.asked.Load() == before {
		return fmt.Errorf("%s may %s, but it did not come to the node: %d %s", a.user, a.what(), recorder.Code, recorder.Body)
	}
	f.controls[a.what()] = true
	return nil
}

// letThrough makes a request about an object that there is not, of a kind that the cloud makes for itself: the API server must say that,
// not that the request is not allowed.
func (f *fuzzer) letThrough(a *attack) error {
	recorder := httptest.NewRecorder()
	f.handler.ServeHTTP(recorder, a.request(f.ctx))
	switch codeOfLast(recorder.Body.String(), recorder.Code) {
	case http.StatusOK, http.StatusCreated, http.StatusNotFound, http.StatusUnprocessableEntity:
		f.controls[a.what()] = true
		return nil
	}
	return fmt.Errorf("%s may %s: %d %s", a.user, a.what(), recorder.Code, recorder.Body)
}

// uncontrolled are the kinds, verbs and subresources that have had no control.
func (f *fuzzer) uncontrolled() []string {
	var missing []string
	for _, k := range f.kinds {
		all := maps.Clone(k.subresources)
		all[""] = k.verbs
		for sub, verbs := range all {
			for _, verb := range verbs {
				if a := (&attack{kind: k, verb: verb, sub: sub}); !f.controls[a.what()] {
					missing = append(missing, a.what())
				}
			}
		}
	}
	return missing
}
