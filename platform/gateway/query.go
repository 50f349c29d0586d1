package gateway

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
)

// Parameters that each verb may have. Any other is refused: the gateway hands on nothing that it does not know.
var (
	writing    = []string{"dryRun", "fieldManager", "fieldValidation"}
	selecting  = []string{"labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch"}
	watching   = []string{"allowWatchBookmarks", "sendInitialEvents"}
	deleting   = []string{"dryRun", "gracePeriodSeconds", "propagationPolicy", "orphanDependents"}
	parameters = map[string][]string{
		verbGet:              {"resourceVersion"},
		verbList:             slices.Concat(selecting, watching),
		verbWatch:            slices.Concat(selecting, watching),
		verbCreate:           writing,
		verbUpdate:           writing,
		verbPatch:            append([]string{"force"}, writing...),
		verbDelete:           deleting,
		verbDeleteCollection: slices.Concat(deleting, selecting),
	}
	// always are the parameters of every verb.
	always = []string{"pretty", "timeout", "timeoutSeconds", "watch", "includeObject"}

	streams = map[string][]string{
		"log":         {"container", "follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes", "stream"},
		"exec":        {"command", "container", "stdin", "stdout", "stderr", "tty"},
		"attach":      {"container", "stdin", "stdout", "stderr", "tty"},
		"portforward": {"ports"},
	}
)

// maxWatch is how long a watch lasts at most; clients go on from where it ended.
const maxWatch = time.Hour

// wantsWatch tells whether the query asks for a watch, as Kubernetes reads it: any value but false and 0.
func wantsWatch(q url.Values) bool {
	v, ok := q["watch"]
	return ok && len(v) > 0 && v[0] != "false" && v[0] != "0"
}

// query is the target's query at the API server.
func (t *target) query(in url.Values, id *Identity) (url.Values, *problem) {
	allowed := slices.Concat(parameters[t.verb], always)
	if t.stream() {
		allowed = slices.Concat(streams[t.subresource], always)
	}
	out := url.Values{}
	for name, values := range in {
		if !slices.Contains(allowed, name) {
			return nil, badRequest(name, "there is no query parameter %q for %s of %s", name, t.verb, t.resource())
		}
		if len(values) != 1 && name != "command" && name != "dryRun" && name != "ports" {
			return nil, badRequest(name, "query parameter %q may stand only once", name)
		}
		out[name] = values
	}
	for _, name := range []string{"pretty", "timeout", "watch"} {
		out.Del(name)
	}
	if s := out.Get("resourceVersion"); s != "" {
		if _, err := strconv.ParseUint(s, 10, 64); err != nil {
			return nil, badRequest("resourceVersion", "query parameter resourceVersion must be one that an answer of the API had")
		}
	}
	if t.verb == verbWatch {
		out.Set("watch", "true")
		if p := boundWatch(out); p != nil {
			return nil, p
		}
	} else if !t.stream() {
		out.Del("timeoutSeconds")
	}
	if s := out.Get("fieldSelector"); s != "" {
		selector, err := selectNamespace(s, id)
		if err != nil {
			return nil, badRequest("fieldSelector", "%s", err)
		}
		out.Set("fieldSelector", selector)
	}
	if s := out.Get("continue"); s != "" {
		out.Set("continue", token(s, id.toNamespaces()))
	}
	return out, nil
}

func boundWatch(out url.Values) *problem {
	seconds := int64(maxWatch / time.Second)
	if s := out.Get("timeoutSeconds"); s != "" {
		asked, err := strconv.ParseInt(s, 10, 64)
		if err != nil || asked < 0 {
			return badRequest("timeoutSeconds", "query parameter timeoutSeconds must be a number of seconds")
		}
		if asked > 0 {
			seconds = min(seconds, asked)
		}
	}
	out.Set("timeoutSeconds", strconv.FormatInt(seconds, 10))
	return nil
}

// selectNamespace puts namespaces in place of tenants' names in a field selector.
func selectNamespace(s string, id *Identity) (string, error) {
	selector, err := fields.ParseSelector(s)
	if err != nil {
		return "", err
	}
	selector, err = selector.Transform(func(field, value string) (string, string, error) {
		if field == "metadata.namespace" || strings.HasSuffix(field, ".namespace") {
			value = id.toNamespaces()(value)
		}
		return field, value, nil
	})
	if err != nil {
		return "", err
	}
	return selector.String(), nil
}
