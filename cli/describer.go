package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubectl/pkg/describe"
	"sigs.k8s.io/yaml"
)

// resourceDescriber describes any kind of the cloud: all have a spec, a phase, conditions and events.
type resourceDescriber struct {
	mapping *meta.RESTMapping
	dynamic dynamic.Interface
	events  corev1client.EventsGetter
}

// Describe implements describe.ResourceDescriber.
func (d *resourceDescriber) Describe(namespace, name string, settings describe.DescriberSettings) (string, error) {
	ctx := context.Background()
	o, err := clientFor(d.dynamic, d.mapping, namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	if err := printResource(&out, o, time.Now()); err != nil {
		return "", err
	}
	if !settings.ShowEvents {
		return out.String(), nil
	}
	events, err := d.eventsOf(ctx, o)
	if err != nil {
		fmt.Fprintf(&out, "Events:\n  cannot be read: %v\n", err)
		return out.String(), nil
	}
	printEvents(&out, events, time.Now())
	return out.String(), nil
}

// eventsOf are the events about the object and, when it runs in a Pod, about that.
func (d *resourceDescriber) eventsOf(ctx context.Context, o *unstructured.Unstructured) ([]corev1.Event, error) {
	about := []fields.Set{{"involvedObject.uid": string(o.GetUID())}}
	if pod, _, _ := unstructured.NestedString(o.Object, "status", "pod"); pod != "" {
		about = append(about, fields.Set{"involvedObject.kind": "Pod", "involvedObject.name": pod})
	}
	var events []corev1.Event
	for _, set := range about {
		list, err := d.events.Events(o.GetNamespace()).List(ctx, metav1.ListOptions{FieldSelector: set.AsSelector().String()})
		if err != nil {
			return nil, err
		}
		events = append(events, list.Items...)
	}
	return events, nil
}

// printResource prints what was declared and how it is.
func printResource(out io.Writer, o *unstructured.Unstructured, now time.Time) error {
	w := printers.GetNewTabWriter(out)
	row := func(title, format string, args ...any) {
		fmt.Fprintf(w, "%s:\t%s\n", title, fmt.Sprintf(format, args...))
	}
	row("Name", "%s", o.GetName())
	if o.GetNamespace() != "" {
		row("Namespace", "%s", o.GetNamespace())
	}
	row("Kind", "%s (%s)", o.GetKind(), o.GetAPIVersion())
	printMap(w, "Labels", o.GetLabels())
	printMap(w, "Annotations", o.GetAnnotations())
	row("Created", "%s (%s ago)", o.GetCreationTimestamp().UTC().Format(time.RFC3339), age(o.GetCreationTimestamp().Time, now))
	if asked := o.GetDeletionTimestamp(); asked != nil {
		row("Deleting", "since %s, finalizers %s", age(asked.Time, now), strings.Join(o.GetFinalizers(), ", "))
	}
	if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase != "" {
		row("Phase", "%s", phase)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := printFields(out, "Spec", o.Object["spec"]); err != nil {
		return err
	}
	if status, ok := o.Object["status"].(map[string]any); ok {
		rest := maps.Clone(status)
		for _, shown := range []string{"phase", "observedGeneration", "conditions"} {
			delete(rest, shown)
		}
		if err := printFields(out, "Status", rest); err != nil {
			return err
		}
	}
	return printConditions(out, conditions(o), now)
}

// printMap prints labels or annotations, one a line; nothing when there are none.
func printMap(w io.Writer, title string, values map[string]string) {
	title += ":"
	for _, key := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(w, "%s\t%s=%s\n", title, key, values[key])
		title = ""
	}
}

// printFields prints fields as they would be declared in YAML.
func printFields(out io.Writer, title string, fields any) error {
	if content, ok := fields.(map[string]any); !ok || len(content) == 0 {
		return nil
	}
	text, err := yaml.Marshal(fields)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s:\n  %s\n", title, strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n  "))
	return err
}

func printConditions(out io.Writer, conditions []metav1.Condition, now time.Time) error {
	if len(conditions) == 0 {
		_, err := fmt.Fprintln(out, "Conditions:\n  none yet: nothing has taken it up")
		return err
	}
	fmt.Fprintln(out, "Conditions:")
	w := printers.GetNewTabWriter(out)
	fmt.Fprintln(w, "  TYPE\tSTATUS\tSINCE\tREASON\tMESSAGE")
	for _, c := range conditions {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", c.Type, c.Status, age(c.LastTransitionTime.Time, now), c.Reason, c.Message)
	}
	return w.Flush()
}

// printEvents prints events, the oldest first.
func printEvents(out io.Writer, events []corev1.Event, now time.Time) {
	if len(events) == 0 {
		fmt.Fprintln(out, "Events:\n  none in the last hour")
		return
	}
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return lastSeen(&a).Compare(lastSeen(&b)) })
	fmt.Fprintln(out, "Events:")
	w := printers.GetNewTabWriter(out)
	fmt.Fprintln(w, "  AGE\tTYPE\tREASON\tOBJECT\tMESSAGE")
	for _, e := range events {
		seen := age(lastSeen(&e), now)
		if n := max(e.Count, seriesCount(&e)); n > 1 {
			seen += fmt.Sprintf(" (x%d)", n)
		}
		object := strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", seen, e.Type, e.Reason, object, strings.TrimSpace(e.Message))
	}
	_ = w.Flush() // to a buffer
}

func lastSeen(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

func seriesCount(e *corev1.Event) int32 {
	if e.Series == nil {
		return 0
	}
	return e.Series.Count
}

func age(t, now time.Time) string { return duration.HumanDuration(now.Sub(t)) }
