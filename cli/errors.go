package cli

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/clientcmd"
)

// usageError is a command line that cannot be understood.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// run makes a command's function out of one whose errors come from the API and its libraries: they reach people in the
// cloud's words.
func (c *connection) run(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return c.explain(f(cmd, args)) }
}

// explain puts an error into the cloud's words: what is wrong and what to do. Several errors stay several.
func (c *connection) explain(err error) error {
	if err == nil {
		return nil
	}
	var several []error
	switch e := err.(type) { //nolint:errorlint // only the outermost error may be several
	case utilerrors.Aggregate:
		several = e.Errors()
	case interface{ Unwrap() []error }:
		several = e.Unwrap()
	}
	if len(several) > 0 {
		for i := range several {
			several[i] = c.explain(several[i])
		}
		return errors.Join(several...)
	}
	if clientcmd.IsEmptyConfig(err) {
		return errNoCloud
	}
	var reworded rewordedError
	if errors.As(err, &reworded) {
		return err
	}
	if message, ok := c.sessionEnded(err); ok {
		return rewordedError{message, err}
	}
	if message, ok := c.unreachable(err); ok {
		return rewordedError{message, err}
	}
	if message, ok := unknownKind(err); ok {
		return rewordedError{message, err}
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if message, ok := c.refused(status.Status()); ok {
			return rewordedError{message, err}
		}
	}
	return err
}

// rewordedError is an error in the cloud's words.
type rewordedError struct {
	message string
	err     error
}

func (e rewordedError) Error() string { return e.message }
func (e rewordedError) Unwrap() error { return e.err }

// unreachable explains that no API server answered.
func (c *connection) unreachable(err error) (string, bool) {
	var request *url.Error
	if !errors.As(err, &request) {
		return "", false
	}
	server := request.URL
	if u, parseErr := url.Parse(request.URL); parseErr == nil {
		server = u.Scheme + "://" + u.Host
	}
	var operation *net.OpError
	if c.session != nil || c.entering {
		return unreachableGateway(server, request, err)
	}
	switch {
	case request.Timeout():
		return fmt.Sprintf("the cloud at %s did not answer in time: `mni status` tells how it is", server), true
	case errors.As(err, &operation):
		return fmt.Sprintf("no cloud answers at %s (%v): `mni status` tells how it is, `mni up` starts it", server, operation.Err), true
	case strings.Contains(err.Error(), "x509:"):
		return fmt.Sprintf("%s is not the cloud that the kubeconfig is for (%v): get its kubeconfig anew", server, request.Err), true
	}
	return "", false
}

// unknownKind explains that the cloud has no such kind.
func unknownKind(err error) (string, bool) {
	var resource *meta.NoResourceMatchError
	var kind *meta.NoKindMatchError
	const remedy = "`mni api-resources` lists the kinds there are"
	switch {
	case errors.As(err, &resource):
		return fmt.Sprintf("this cloud has no kind %q: %s", resource.PartialResource.GroupResource(), remedy), true
	case errors.As(err, &kind):
		word := fmt.Sprintf("this cloud has no kind %q in API group %q", kind.GroupKind.Kind, kind.GroupKind.Group)
		if len(kind.SearchedVersions) > 0 {
			word += " version " + strings.Join(kind.SearchedVersions, ", ")
		}
		return word + ": " + remedy, true
	}
	if word, ok := strings.CutPrefix(err.Error(), "the server doesn't have a resource type "); ok {
		return fmt.Sprintf("this cloud has no kind %s: %s", word, remedy), true
	}
	return "", false
}

// refused explains why the API server refused.
func (c *connection) refused(status metav1.Status) (string, bool) {
	details := status.Details
	if message, ok := c.refusedTenant(status, ""); ok {
		return message, true
	}
	const unaccepted = "the cloud does not accept the kubeconfig's credentials: they may have expired or belong to another cloud"
	switch status.Reason {
	case metav1.StatusReasonUnauthorized:
		return unaccepted, true
	case metav1.StatusReasonForbidden:
		// What an API server that lets anyone in says to those whom it does not know.
		return unaccepted, status.Message == "unknown"
	case metav1.StatusReasonNotFound:
		if details == nil || details.Name == "" {
			return "", false
		}
		if details.Kind == "namespaces" {
			return fmt.Sprintf("namespace %q does not exist: choose another with -n, or apply a Namespace of that name first", details.Name), true
		}
		what := display(c.kindOf(details), details.Name)
		if namespace, _, err := c.ToRawKubeConfigLoader().Namespace(); err == nil && ofTenants(details.Group) {
			if c.session != nil {
				return fmt.Sprintf("%s not found in tenant %q: `mni get` lists what there is, -t chooses another tenant", what, namespace), true
			}
			return fmt.Sprintf("%s not found in namespace %q: `mni get` lists what there is, -n chooses another namespace", what, namespace), true
		}
		return what + " not found", true
	case metav1.StatusReasonInvalid:
		if details == nil || len(details.Causes) == 0 {
			return "", false
		}
		var wrong []string
		for _, p := range problems(details.Causes) {
			wrong = append(wrong, p.String())
		}
		return display(c.kindOf(details), details.Name) + ": " + strings.Join(wrong, "; "), true
	}
	return "", false
}
