package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// refusal explains why the API server did not take a document: for each wrong field its place in the file, what is wrong
// and what to do.
func (a *applying) refusal(d *document, err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err
	}
	if refused := a.refusedDocument(d, err); refused != err { //nolint:errorlint // it is the same one or another
		return refused
	}
	s := status.Status()
	name := display(d.object.GroupVersionKind().GroupKind(), d.object.GetName())
	wrong := func(field, format string, args ...any) error {
		return d.errorf(field, "%s: %s", name, problem{field, fmt.Sprintf(format, args...)})
	}
	var errs []error
	switch {
	case s.Reason == metav1.StatusReasonInvalid && s.Details != nil:
		for _, p := range problems(s.Details.Causes) {
			errs = append(errs, wrong(p.field, "%s", p.message))
		}
	case apierrors.IsConflict(err) && s.Details != nil:
		for _, cause := range s.Details.Causes {
			if cause.Type == metav1.CauseTypeFieldManagerConflict {
				field := strings.TrimPrefix(cause.Field, ".")
				errs = append(errs, wrong(field, "%s: to take the field over, apply with --force-conflicts", cause.Message))
			}
		}
	default:
		for _, m := range schemaErrors(s.Message) {
			message := m.message
			if m.unknown {
				message = fmt.Sprintf("there is no such field: `mni explain %s` lists the fields", explainPath(d, m.field))
			}
			errs = append(errs, wrong(m.field, "%s", message))
		}
	}
	if len(errs) == 0 {
		return d.errorf("", "%s: %w", name, a.explain(err))
	}
	return errors.Join(errs...)
}

// schemaError is one complaint of the API server about a field that does not fit the kind's schema.
type schemaError struct {
	field, message string
	unknown        bool
}

// needsQuotes is said of a value that should be text and is something else.
const needsQuotes = "a value that YAML takes for something else (1, 1.0, yes, n, null) needs quotes"

var (
	undeclaredField = regexp.MustCompile(`\.([^\s:]+): field not declared in schema`)
	mistypedField   = regexp.MustCompile(`\.([^\s:]+): (expected \w+)(?: \([^)]*\))?, got`)
	strictUnknown   = regexp.MustCompile(`unknown field "([^"]+)"`)
	givenTwice      = regexp.MustCompile(`\.([^\s:]+): duplicate entries for key \[(\w*)="([^"]*)"\]`)
)

// schemaErrors finds the fields in the message that the API server gives when a document does not fit its kind's schema.
func schemaErrors(message string) []schemaError {
	var found []schemaError
	for _, unknown := range []*regexp.Regexp{undeclaredField, strictUnknown} {
		for _, m := range unknown.FindAllStringSubmatch(message, -1) {
			found = append(found, schemaError{field: m[1], unknown: true})
		}
	}
	for _, m := range mistypedField.FindAllStringSubmatch(message, -1) {
		wanted := m[2]
		if wanted == "expected numeric" {
			wanted = "must be a number, without quotes"
		}
		if wanted == "expected string" {
			wanted += ": " + needsQuotes
		}
		found = append(found, schemaError{field: m[1], message: wanted})
	}
	for _, m := range givenTwice.FindAllStringSubmatch(message, -1) {
		found = append(found, schemaError{field: m[1], message: strings.TrimSpace(m[2]+" "+strconv.Quote(m[3])) + " stands there more than once: leave all but one out"})
	}
	return found
}

var listIndex = regexp.MustCompile(`\[[^\]]*\]`)

// explainPath is what to ask `mni explain` for about the fields beside one: "vpc.spec".
func explainPath(d *document, field string) string {
	path := []string{strings.ToLower(d.object.GetKind())}
	if parent, _, nested := cutLast(listIndex.ReplaceAllString(field, ""), "."); nested {
		path = append(path, parent)
	}
	return strings.Join(path, ".")
}

func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}

// similarKind suggests the kind that may have been meant: the same word in other case, group or version.
func (c *connection) similarKind(gvk schema.GroupVersionKind) string {
	d, err := c.discovery()
	if err != nil {
		return ""
	}
	_, lists, _ := d.ServerGroupsAndResources()
	for _, list := range lists {
		if !ofTenants(groupOf(list)) {
			continue
		}
		for _, r := range list.APIResources {
			if strings.EqualFold(r.Kind, gvk.Kind) && !strings.Contains(r.Name, "/") {
				return fmt.Sprintf("; did you mean apiVersion: %s, kind: %s?", list.GroupVersion, r.Kind)
			}
		}
	}
	return ""
}
