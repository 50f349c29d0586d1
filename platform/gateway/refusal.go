package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refusal is an error by which the API server answered instead of a stream.
type refusal struct{ status *metav1.Status }

// Error implements error.
func (r *refusal) Error() string { return r.status.Message }

// modify hands on the headers that a stream's answer may have; an error becomes a refusal.
func (q *call) modify(response *http.Response, out *outbound) error {
	if response.StatusCode >= http.StatusBadRequest {
		return refusalOf(response, out)
	}
	header := http.Header{}
	for _, name := range append([]string{"Content-Type"}, handedOn...) {
		for _, value := range response.Header.Values(name) {
			header.Add(name, out.names.Replace(value))
		}
	}
	response.Header = header
	return nil
}

// refusalOf reads the Status of an answer.
func refusalOf(response *http.Response, out *outbound) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	text := out.names.Replace(string(body))
	status := &metav1.Status{}
	if err := json.Unmarshal([]byte(text), status); err != nil || status.Kind != "Status" {
		// A node says why in plain text.
		status = newProblem(response.StatusCode, "", "", "%s", strings.TrimSpace(text)).status()
	}
	return &refusal{status}
}
