package gateway

import (
	"mime"
	"net/http"
	"strings"
)

// accepted is the form of the answer that a client takes.
type accepted struct {
	// upstream is what the API server is asked for.
	upstream string
	// yaml tells whether the client wants YAML rather than JSON.
	yaml bool
}

// accept chooses the first form of those that the client takes and the gateway has: JSON and YAML, of objects, tables
// (as=Table) and metadata (as=PartialObjectMetadata).
func accept(r *http.Request) (accepted, *problem) {
	header := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		return accepted{upstream: typeJSON}, nil
	}
	for part := range strings.SplitSeq(header, ",") {
		mediaType, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		switch mediaType {
		case typeJSON, "*/*", "application/*", "application/problem+json":
		case typeYAML, "application/x-yaml", "text/yaml":
			return accepted{upstream: typeJSON, yaml: true}, nil
		default:
			continue
		}
		switch as := params["as"]; as {
		case "":
			return accepted{upstream: typeJSON}, nil
		case "Table", "PartialObjectMetadata", "PartialObjectMetadataList":
			if params["g"] == "meta.k8s.io" && params["v"] == "v1" {
				return accepted{upstream: typeJSON + ";as=" + as + ";v=v1;g=meta.k8s.io"}, nil
			}
		}
	}
	return accepted{}, newProblem(http.StatusNotAcceptable, "NotAcceptable", "", "Accept: answers are %s or %s", typeJSON, typeYAML)
}
