package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// problem is one thing that is wrong with an object. The field is "" when it is about the whole object.
type problem struct{ field, message string }

func (p problem) String() string {
	if p.field == "" {
		return p.message
	}
	return p.field + ": " + p.message
}

var (
	// uncheckedRules is what the API server adds when the schema already refused something. It says nothing to correct.
	uncheckedRules = "some validation rules were not checked because the object was invalid"
	inBody         = regexp.MustCompile(`\S+ in body (must|should) `)
	regexpUsed     = regexp.MustCompile(`( \(|, *)regex used for validation is '.*'\)`)
	wantsPattern   = regexp.MustCompile(`should match '.*'`)
	wantsType      = regexp.MustCompile(`must be of type (\S+): "(\w+)"`)
	// aboutName is a rule about an object's name, which the API server can only give for the whole object.
	aboutName = regexp.MustCompile(`^Invalid value: (?:.*: )?metadata\.name (.*)`)
)

// problems are the causes that an API server gives for refusing an object, each once, in words.
func problems(causes []metav1.StatusCause) []problem {
	var found []problem
	for _, cause := range causes {
		if strings.Contains(cause.Message, uncheckedRules) && len(causes) > 1 {
			continue
		}
		p := problem{field: strings.TrimPrefix(cause.Field, "<nil>"), message: inWords(cause.Message)}
		if m := aboutName.FindStringSubmatch(p.message); m != nil && p.field == "" {
			p = problem{field: "metadata.name", message: m[1]}
		}
		if !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	return found
}

// inWords says what the API server's checks of a schema say without the field's name once more, and without regular
// expressions.
func inWords(message string) string {
	message = inBody.ReplaceAllString(message, "$1 ")
	message = wantsPattern.ReplaceAllString(message, "does not have the form of this field: `mni explain` tells it")
	message = regexpUsed.ReplaceAllStringFunc(message, func(used string) string {
		if strings.HasPrefix(used, " (") {
			return ""
		}
		return ")" // an example stands before it
	})
	if m := wantsType.FindStringSubmatch(message); m != nil {
		return wantedType(m[1], m[2])
	}
	return message
}

// wantedType says which type a value must have: the schema's names of types, separated by commas.
func wantedType(wanted, got string) string {
	if wanted == "integer,string" && got == "number" {
		return `must be a whole number or text: write it in quotes, such as "0.5"`
	}
	return fmt.Sprintf("must be %s, not %s", strings.ReplaceAll(wanted, ",", " or "), got)
}
