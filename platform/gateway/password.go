package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// passwordPointer is where a User's password is, as a JSON pointer (RFC 6901). What is stored there is a hash, and nobody is shown it:
// who has a hash can try passwords in peace.
const passwordPointer = "/spec/password"

// user tells whether the target is Users.
func (s *served) user() bool { return s.Group == groupAuth && s.plural == "users" }

// hidePassword takes the hash out of a User.
func hidePassword(object map[string]any) {
	if spec, ok := object["spec"].(map[string]any); ok {
		delete(spec, "password")
	}
}

// reveals tells whether an operation of a JSON patch would tell a User's hash: by a copy of it elsewhere, or by comparing it.
func reveals(operation map[string]any) bool {
	for _, field := range []string{"from", "path"} {
		if field == "path" && operation["op"] != "test" {
			continue
		}
		pointer, _ := operation[field].(string)
		if pointer == "/spec" || pointer == passwordPointer || strings.HasPrefix(pointer, passwordPointer+"/") {
			return true
		}
	}
	return false
}

// keepPassword gives an update of a User that leaves the password out, as whoever read the User here must, the stored hash. An
// update names its version, so one of an old version conflicts whatever hash it was given. refused is an answer to hand on when the User
// cannot be read.
func (q *call) keepPassword(ctx context.Context, body []byte) (kept []byte, refused *answer, err error) {
	var object map[string]any
	if err := utiljson.Unmarshal(body, &object); err != nil {
		return nil, nil, err
	}
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		if object["spec"] != nil {
			return body, nil, nil // the API server says what is wrong
		}
		spec = map[string]any{}
	}
	if _, given := spec["password"]; given {
		return body, nil, nil
	}
	request, err := q.upstream.request(ctx, q.id, http.MethodGet, q.target.path(), nil, nil)
	if err != nil {
		return nil, nil, err
	}
	stored, err := q.upstream.do(request)
	if err != nil || stored.code != http.StatusOK {
		return nil, stored, err
	}
	var now struct {
		Spec struct {
			Password string `json:"password"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(stored.body, &now); err != nil {
		return nil, nil, err
	}
	if now.Spec.Password == "" {
		return body, nil, nil
	}
	spec["password"], object["spec"] = now.Spec.Password, spec
	kept, err = json.Marshal(object)
	return kept, nil, err
}
