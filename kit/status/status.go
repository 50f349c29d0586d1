// Package status is the vocabulary in which every resource of the cloud tells how it is: metav1.Conditions with a
// top-level Ready (and Reconciling or Stalled for kstatus-aware tools), and a phase computed from them for people.
//
// Sources: Kubernetes API conventions (typical status properties), sigs.k8s.io/cli-utils kstatus.
package status

// Phase is a one-word summary for people and lists. It is always computed from the conditions, never decided on its own.
// +kubebuilder:validation:Enum=Pending;Provisioning;Ready;Error;Deleting
type Phase string

// The phases of a resource's life.
const (
	// Pending: waits for something else, which a condition names.
	Pending Phase = "Pending"
	// Provisioning: being made or changed.
	Provisioning Phase = "Provisioning"
	// Ready: does what its spec says.
	Ready Phase = "Ready"
	// Error: cannot become Ready without a change that a condition names.
	Error Phase = "Error"
	// Deleting: asked to go; a condition names what it waits for.
	Deleting Phase = "Deleting"
)

// Condition types shared by every kind.
const (
	// ConditionReady sums up the resource: True exactly when it does what its spec says.
	ConditionReady = "Ready"
	// ConditionReconciling is True while the controller works towards the spec (kstatus: InProgress). Absent otherwise.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when only a change by someone else can help (kstatus: Failed). Absent otherwise.
	ConditionStalled = "Stalled"
)
