package dependency

import (
	"context"
	"encoding/json"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/mnicloud/mnicloud/platform/dependency/declare"
	"github.com/mnicloud/mnicloud/platform/dependency/graph"
)

// Path is where the webhook is served.
const Path = "/dependency/cycles"

// refuser refuses objects whose spec.dependsOn leads nowhere or back to them. It answers from what is known; two objects that are written
// at the same moment may close a cycle, of which the controller then tells.
type refuser struct {
	state   *state
	watcher *watcher
}

// Handle implements admission.Handler.
func (r *refuser) Handle(_ context.Context, request admission.Request) admission.Response {
	if !r.watcher.started() {
		return refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "spec.dependsOn cannot be looked at yet; try again in a moment")
	}
	var content map[string]any
	if err := json.Unmarshal(request.Object.Raw, &content); err != nil {
		return refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the object cannot be read")
	}
	gk := schema.GroupKind{Group: request.Kind.Group, Kind: request.Kind.Kind}
	name := request.Name
	if name == "" { // metadata.generateName: nothing can name it yet
		return admission.Allowed("")
	}
	fields := r.watcher.declared(gk).Edges(request.Namespace, content)
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	on, err := declare.DependsOnEdges(request.Namespace, declare.DependsOn(content), r.state.kinds)
	if err != nil {
		return refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
	}
	key := graph.Key{GroupKind: gk, Namespace: request.Namespace, Name: name}
	if cycle := r.state.graph.CycleWith(key, append(fields, on...)); cycle != nil {
		return refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, cycleMessage(cycle))
	}
	return admission.Allowed("")
}

// declared is what a kind says of its references.
func (w *watcher) declared(gk schema.GroupKind) declare.Kind {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.running[gk]; r != nil {
		return r.kind.Kind
	}
	return declare.Kind{}
}

func refuse(code int32, reason metav1.StatusReason, message string) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Result: &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message},
	}}
}
