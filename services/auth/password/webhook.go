package password

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Path is where the webhook is served.
const Path = "/auth/users/password"

// lastApplied is where `kubectl apply` keeps all of what it was given.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Webhook hashes the passwords of Users that are being written.
type Webhook struct {
	// Cost of new hashes.
	Cost int
	// slots bound how many hashes are made at once: each takes a processor for a while.
	slots chan struct{}
}

// NewWebhook makes a webhook that makes hashes of the cost, at most two at once.
func NewWebhook(cost int) *Webhook { return &Webhook{Cost: cost, slots: make(chan struct{}, 2)} }

// user is what the webhook looks at. Password is any value: what is not text is refused here, as later its value would be in the message.
type user struct {
	Metadata struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		DisplayName any `json:"displayName"`
		Password    any `json:"password"`
	} `json:"spec"`
}

// Handle answers with the changes that take plain text out of a User: the password becomes its hash, the old hash when it is the
// same password; and what kubectl keeps of what was applied loses the password.
func (w *Webhook) Handle(ctx context.Context, request admission.Request) admission.Response {
	var now, before user
	if err := json.Unmarshal(request.Object.Raw, &now); err != nil {
		return refuse("the User cannot be read; its labels, annotations and display name must be text")
	}
	if len(request.OldObject.Raw) > 0 {
		if err := json.Unmarshal(request.OldObject.Raw, &before); err != nil {
			return refuse("the User as it was cannot be read")
		}
	}
	var changes []jsonpatch.Operation
	if text, found := now.Metadata.Annotations[lastApplied]; found {
		cleaned, ok := withoutPassword(text)
		if !ok {
			return refuse("metadata.annotations[" + lastApplied + "]: must be the JSON that kubectl writes there; remove the annotation")
		}
		if cleaned != text {
			now.Metadata.Annotations[lastApplied] = cleaned
			changes = append(changes, jsonpatch.NewOperation("replace", "/metadata/annotations/"+strings.ReplaceAll(lastApplied, "/", "~1"), cleaned))
		}
	}
	stored, no := w.stored(ctx, &now, &before)
	if no != "" {
		return refuse(no)
	}
	if stored != now.Spec.Password {
		changes = append(changes, jsonpatch.NewOperation("replace", "/spec/password", stored))
	}
	return admission.Patched("", changes...)
}

// stored is the password as it is to be stored, or why it is refused.
func (w *Webhook) stored(ctx context.Context, now, before *user) (stored any, no string) {
	if now.Spec.Password == nil {
		return nil, ""
	}
	plain, ok := now.Spec.Password.(string)
	if !ok {
		return nil, "spec.password: must be text; put it into quotes"
	}
	old, _ := before.Spec.Password.(string)
	if plain == old || IsHash(plain) {
		return plain, ""
	}
	if strings.HasPrefix(plain, "$2") && len(plain) == 60 {
		return nil, "spec.password: is a bcrypt hash of a cost that is not from 10 to 14; make another, or write the password itself"
	}
	if _, err := Prepare(plain); err != nil {
		return nil, "spec.password: " + err.Error()
	}
	if field, found := elsewhere(now, plain); found {
		return nil, field + ": contains the password, which would be stored there in plain text; change one of the two"
	}
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
	case <-ctx.Done():
		return nil, "spec.password: too many passwords are being changed at once; try again"
	}
	if Matches(old, plain) {
		return old, ""
	}
	made, err := Hash(plain, w.Cost)
	if err != nil {
		return nil, "spec.password: " + err.Error()
	}
	return made, ""
}

// elsewhere finds plain text in another field of the User.
func elsewhere(u *user, plain string) (field string, found bool) {
	if name, ok := u.Spec.DisplayName.(string); ok && strings.Contains(name, plain) {
		return "spec.displayName", true
	}
	if strings.Contains(u.Metadata.Name, plain) {
		return "metadata.name", true
	}
	for key, value := range u.Metadata.Labels {
		if strings.Contains(key+" "+value, plain) {
			return "metadata.labels", true
		}
	}
	for key, value := range u.Metadata.Annotations {
		encoded, err := json.Marshal(plain)
		if err != nil || strings.Contains(key+" "+value, plain) || strings.Contains(value, strings.Trim(string(encoded), `"`)) {
			return "metadata.annotations", true
		}
	}
	return "", false
}

// withoutPassword takes the password out of what kubectl keeps. Then kubectl neither finds the hash changed nor takes the
// password away when a later file has none.
func withoutPassword(text string) (string, bool) {
	var kept map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&kept); err != nil {
		return "", false
	}
	spec, ok := kept["spec"].(map[string]any)
	if !ok {
		return text, true
	}
	if _, found := spec["password"]; !found {
		return text, true
	}
	delete(spec, "password")
	out, err := json.Marshal(kept)
	if err != nil {
		return "", false
	}
	return string(out) + "\n", true // as kubectl writes it
}

func refuse(message string) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Result: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: message},
	}}
}
