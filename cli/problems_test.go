package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhatTheAPIServerSaysIsToldInWords(t *testing.T) {
	for said, want := range map[string]string{
		"Required value": "Required value",
		`Invalid value: 0: spec.ports[0].port in body should be greater than or equal to 1`:                                  `Invalid value: 0: should be greater than or equal to 1`,
		`Invalid value: "x": spec.name in body should match '^[a-z]+(x|y)$'`:                                                 "Invalid value: \"x\": does not have the form of this field: `mni explain` tells it",
		`a label must start with a letter (e.g. 'my-name',  or '123-abc', regex used for validation is '([a-z]('[a-z])?)*')`: `a label must start with a letter (e.g. 'my-name',  or '123-abc')`,
		`a name must start with a letter (regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`:                        `a name must start with a letter`,
		`Invalid value: "number": spec.resources.limits.cpu in body must be of type integer,string: "number"`:                `must be a whole number or text: write it in quotes, such as "0.5"`,
		`Invalid value: "array": spec.image in body must be of type string: "array"`:                                         "must be string, not array",
	} {
		require.Equal(t, want, inWords(said))
	}
}

func TestRulesThatWereNotCheckedAreOnlyToldWhenNothingElseIs(t *testing.T) {
	unchecked := metav1.StatusCause{Field: "<nil>", Message: "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"}
	wrong := metav1.StatusCause{Field: "spec.image", Message: "Required value"}
	require.Equal(t, []problem{{"spec.image", "Required value"}}, problems([]metav1.StatusCause{wrong, unchecked, wrong}))
	require.Equal(t, []problem{{"", unchecked.Message}}, problems([]metav1.StatusCause{unchecked}))
}

func TestARuleAboutTheNameNamesItsField(t *testing.T) {
	for _, message := range []string{"Invalid value: metadata.name must have no dots", `Invalid value: "object": metadata.name must have no dots`} {
		require.Equal(t, []problem{{"metadata.name", "must have no dots"}}, problems([]metav1.StatusCause{{Field: "<nil>", Message: message}}))
	}
}
