package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// Media types of bodies.
const (
	typeJSON       = "application/json"
	typeYAML       = "application/yaml"
	typeApply      = "application/apply-patch+yaml"
	typeMergePatch = "application/merge-patch+json"
	typeJSONPatch  = "application/json-patch+json"
)

const (
	// maxBody is how large a body may be, and how large what its YAML stands for, in bytes. It is the API server's own limit.
	maxBody = 3 << 20
	// maxDepth is how deep YAML may nest. No kind is near it.
	maxDepth = 500
	// bodyTimeout is how long a client may take to send a body.
	bodyTimeout = 30 * time.Second
)

// readBody reads a request's body: at most maxBody bytes, within bodyTimeout.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *problem) {
	if r.Header.Get("Content-Encoding") != "" {
		return nil, unsupported("bodies with a Content-Encoding are not read: send it as it is")
	}
	if r.ContentLength > maxBody {
		return nil, tooLarge("the body has %d bytes; at most %d are read", r.ContentLength, maxBody)
	}
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, unavailable("%s", err)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if large := new(http.MaxBytesError); errors.As(err, &large) {
		return nil, tooLarge("the body has more than %d bytes", maxBody)
	}
	if err != nil {
		p := newProblem(http.StatusRequestTimeout, "Timeout", "", "the body did not arrive within %s: %s", bodyTimeout, err)
		return nil, p
	}
	if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, unavailable("%s", err)
	}
	return body, nil
}

func unsupported(format string, args ...any) *problem {
	return newProblem(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "", format, args...)
}

// contentType is the media type of a body; JSON when it has none, as YAML covers it.
func contentType(r *http.Request) (string, *problem) {
	header := r.Header.Get("Content-Type")
	if header == "" {
		return typeYAML, nil
	}
	mediaType, _, err := mime.ParseMediaType(header)
	if err != nil {
		return "", unsupported("Content-Type: %s", err)
	}
	switch mediaType {
	case "application/x-yaml", "text/yaml", "text/x-yaml":
		return typeYAML, nil
	}
	return mediaType, nil
}

// decode reads an object (or, for a JSON patch, a list) from JSON or YAML.
func decode(body []byte, mediaType string, into any) error {
	if mediaType == typeYAML || mediaType == typeApply {
		if err := checkYAML(body); err != nil {
			return err
		}
		converted, err := sigsyaml.YAMLToJSONStrict(body)
		if err != nil {
			return fmt.Errorf("the body is not YAML: %w", err)
		}
		body = converted
	}
	strict, err := kjson.UnmarshalStrict(body, into)
	if err != nil {
		return fmt.Errorf("the body is not what is expected here: %w", err)
	}
	return errors.Join(strict...)
}

// checkYAML refuses YAML that stands for much more than it says (aliases of aliases), nests too deep or has several documents. It
// takes time and memory by the length of the text, not by that of what it stands for.
func checkYAML(body []byte) error {
	var root, next yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(body))
	if err := documents.Decode(&root); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("the body is not YAML: %w", err)
	}
	if err := documents.Decode(&next); !errors.Is(err, io.EOF) {
		return errors.New("the body has several documents: send one at a time")
	}
	weights := map[*yaml.Node]int{}
	if _, err := weigh(&root, weights, 0); err != nil {
		return err
	}
	return nil
}

var errBomb = fmt.Errorf("the YAML's aliases stand for more than %d bytes: write out what is meant", maxBody)

// weigh says how many bytes a node stands for, at least.
func weigh(n *yaml.Node, weights map[*yaml.Node]int, depth int) (int, error) {
	if depth > maxDepth {
		return 0, fmt.Errorf("the YAML nests deeper than %d levels", maxDepth)
	}
	if known, ok := weights[n]; ok {
		if known < 0 {
			return 0, errors.New("the YAML has an alias within what it stands for")
		}
		return known, nil
	}
	weights[n] = -1
	weight := len(n.Value) + 1
	if n.Kind == yaml.AliasNode {
		w, err := weigh(n.Alias, weights, depth+1)
		if err != nil {
			return 0, err
		}
		weight += w
	}
	for _, child := range n.Content {
		w, err := weigh(child, weights, depth+1)
		if err != nil {
			return 0, err
		}
		if weight += w; weight > maxBody {
			return 0, errBomb
		}
	}
	weights[n] = weight
	return weight, nil
}
