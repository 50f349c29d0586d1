package audit

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// LabelTenantUID stands on a chunk and is the UID of the Tenant whose trail it is of.
	LabelTenantUID = "audit.mnicloud.jp/tenant-uid"
	// LabelTenant is the Tenant's name.
	LabelTenant = "audit.mnicloud.jp/tenant"

	// annotationFrom and annotationUntil are the times of the oldest and of the newest entry, RFC 3339.
	annotationFrom  = "audit.mnicloud.jp/from"
	annotationUntil = "audit.mnicloud.jp/until"
	// annotationEntries is how many there are, annotationBytes how many bytes they have as they are stored.
	annotationEntries = "audit.mnicloud.jp/entries"
	annotationBytes   = "audit.mnicloud.jp/bytes"

	// sealed is the key of a full chunk's entries, compressed by gzip. Those of one that is not full are under numbers, a batch each.
	sealed = "entries.gz"

	// maxChunk is at how many bytes a chunk is full, maxSpan at what age: it goes as a whole when its newest entry is too old.
	maxChunk = 32 << 10
	maxSpan  = 7 * 24 * time.Hour
	// maxText is how many bytes of entries a chunk may stand for.
	maxText = 1 << 20
	// overhead is what a chunk takes beside its entries, in bytes.
	overhead = 1 << 10
)

// chunk is a ConfigMap with entries of one tenant, one JSON object a line, as its only writer knows it.
type chunk struct {
	name string
	// version is the ConfigMap's; empty before it is made.
	version     string
	began       time.Time
	from, until time.Time
	// batches, entries and bytes are how many it has.
	batches, entries, bytes int
}

// nameOf is a chunk's name: by tenant, by time, by writer.
func nameOf(uid string, began time.Time, writer string) string {
	return fmt.Sprintf("audit-%s-%012x-%s", uid, began.UnixMilli(), writer)
}

// placeOf is the part of a chunk's name that says nothing of the tenant. Among chunks of one tenant it is unique.
func placeOf(name, uid string) string {
	return name[min(len(name), len("audit-")+len(uid)+len("-")):]
}

// full tells whether another chunk takes the next batch.
func (c *chunk) full(now time.Time) bool { return c.bytes >= maxChunk || now.Sub(c.began) >= maxSpan }

// with is the chunk with a batch more.
func (c chunk) with(b *batch) *chunk {
	if c.batches == 0 || b.from.Before(c.from) {
		c.from = b.from
	}
	if b.until.After(c.until) {
		c.until = b.until
	}
	c.batches++
	c.entries += b.entries
	c.bytes += len(b.text)
	return &c
}

func (c *chunk) annotations() map[string]string {
	return map[string]string{
		annotationFrom: c.from.Format(time.RFC3339Nano), annotationUntil: c.until.Format(time.RFC3339Nano),
		annotationEntries: strconv.Itoa(c.entries), annotationBytes: strconv.Itoa(c.bytes),
	}
}

// key is where the newest batch is.
func (c *chunk) key() string { return fmt.Sprintf("%06d", c.batches) }

// render is the ConfigMap with its first batch.
func (c *chunk) render(namespace string, tenant Tenant, text []byte) *corev1.ConfigMap {
	labels := map[string]string{"app.kubernetes.io/part-of": "mnicloud", LabelTenantUID: tenant.UID}
	if len(validation.IsValidLabelValue(tenant.Name)) == 0 {
		labels[LabelTenant] = tenant.Name
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.name, Labels: labels, Annotations: c.annotations()},
		Data:       map[string]string{c.key(): string(text)},
	}
}

// patch is the merge patch that adds the newest batch, if the chunk is of the version that its writer knows.
func (c *chunk) patch(text []byte) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": c.version, "annotations": c.annotations()},
		"data":     map[string]string{c.key(): string(text)},
	})
}

// seal is the merge patch that compresses a chunk to which nothing will be added.
func seal(stored *corev1.ConfigMap) ([]byte, error) {
	text, err := textOf(stored)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	packer := gzip.NewWriter(&packed)
	if _, err := packer.Write(text); err != nil {
		return nil, err
	}
	if err := packer.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{
			"resourceVersion": stored.ResourceVersion, "annotations": map[string]string{annotationBytes: strconv.Itoa(packed.Len())},
		},
		"data":       nil,
		"binaryData": map[string][]byte{sealed: packed.Bytes()},
	})
}

// textOf is a chunk's entries, one JSON object a line.
func textOf(stored *corev1.ConfigMap) ([]byte, error) {
	if packed, ok := stored.BinaryData[sealed]; ok {
		unpacker, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, fmt.Errorf("chunk %s: %w", stored.Name, err)
		}
		text, err := io.ReadAll(io.LimitReader(unpacker, maxText))
		if err != nil {
			return nil, fmt.Errorf("chunk %s: %w", stored.Name, err)
		}
		return text, nil
	}
	var text []byte
	for _, key := range slices.Sorted(maps.Keys(stored.Data)) {
		text = append(text, stored.Data[key]...)
	}
	return text, nil
}

// entriesOf reads a chunk's entries. A line that is none counts as an entry without content.
func entriesOf(stored *corev1.ConfigMap) ([]Entry, error) {
	text, err := textOf(stored)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for line := range bytes.Lines(text) {
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			e = Entry{}
		}
		entries = append(entries, e)
	}
	return entries, nil
}
