package audit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// sweep is how often chunks of all tenants are looked at, about.
	sweep = time.Hour
	// maxRemoved is how many chunks one look removes at most.
	maxRemoved = 1000
	// pageOfChunks is how many are asked for at once.
	pageOfChunks = 500
)

// about is what a chunk's metadata says of it.
type about struct {
	name        string
	object      types.UID
	tenant      string
	from, until time.Time
	bytes       int64
}

// aboutOf reads a chunk's metadata. Times that cannot be read are those of its creation.
func aboutOf(m *metav1.PartialObjectMetadata) about {
	a := about{name: m.Name, object: m.UID, tenant: m.Labels[LabelTenantUID], from: m.CreationTimestamp.Time, until: m.CreationTimestamp.Time}
	if from, err := time.Parse(time.RFC3339Nano, m.Annotations[annotationFrom]); err == nil {
		a.from = from
	}
	if until, err := time.Parse(time.RFC3339Nano, m.Annotations[annotationUntil]); err == nil {
		a.until = until
	}
	a.bytes, _ = strconv.ParseInt(m.Annotations[annotationBytes], 10, 64)
	return a
}

// excess are those of one tenant's chunks that are too old, and the oldest of those that are too much; the newest is never too much. They are
// in the order of their names, which is that of time.
func excess(chunks []about, now time.Time, age time.Duration, limit int64) []about {
	var out []about
	var kept int64
	full := false
	for i := len(chunks) - 1; i >= 0; i-- {
		c := chunks[i]
		size := c.bytes + overhead
		full = full || i < len(chunks)-1 && kept+size > limit
		if full || now.Sub(c.until) > age {
			out = append(out, c)
			continue
		}
		kept += size
	}
	return out
}

// collect removes what is too old or too much until the context ends. Any number of processes may do so at once, and any may die at any time:
// what goes is decided anew each time by what there is.
func (t *Trail) collect(ctx context.Context) {
	// Not all processes at the same moment, and not while the cloud starts.
	timer := time.NewTimer(sweep/60 + rand.N(sweep/60)) //nolint:gosec // no secret
	defer timer.Stop()
	for {
		var narrow client.ListOption = client.HasLabels{LabelTenantUID}
		select {
		case <-ctx.Done():
			return
		case uid := <-t.grown:
			narrow = client.MatchingLabels{LabelTenantUID: uid}
		case <-timer.C:
			timer.Reset(sweep/2 + rand.N(sweep)) //nolint:gosec // no secret
		}
		if err := t.removeExcess(ctx, narrow); err != nil && ctx.Err() == nil {
			t.options.Log.Error("old entries of the audit trail are not removed", "error", err)
		}
	}
}

// removeExcess looks at chunks, tenant by tenant, and removes those that are too old or too much.
func (t *Trail) removeExcess(ctx context.Context, narrow client.ListOption) error {
	ctx, cancel := context.WithTimeout(ctx, sweep/2)
	defer cancel()
	removed := 0
	var one []about
	judge := func() error {
		for _, c := range excess(one, t.options.Now(), t.options.Age, t.options.Bytes) {
			if removed++; removed > maxRemoved {
				return nil
			}
			if err := t.remove(ctx, c); err != nil {
				return err
			}
		}
		one = nil
		return nil
	}
	// Lists are in the order of names, in which the tenant comes first.
	err := t.each(ctx, narrow, func(c about) error {
		if len(one) > 0 && one[0].tenant != c.tenant {
			if err := judge(); err != nil {
				return err
			}
		}
		one = append(one, c)
		return nil
	})
	if err != nil {
		return err
	}
	return judge()
}

func (t *Trail) remove(ctx context.Context, c about) error {
	gone := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: t.options.Namespace, Name: c.name}}
	err := t.client.Delete(ctx, gone, client.Preconditions{UID: &c.object})
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("remove chunk %s: %w", c.name, err)
	}
	return nil
}

// each calls with the metadata of chunks, in the order of their names.
func (t *Trail) each(ctx context.Context, narrow client.ListOption, call func(about) error) error {
	next := ""
	for {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
		err := t.client.List(ctx, list, client.InNamespace(t.options.Namespace), narrow, client.Limit(pageOfChunks), client.Continue(next))
		if err != nil {
			return fmt.Errorf("list chunks: %w", err)
		}
		for i := range list.Items {
			if err := call(aboutOf(&list.Items[i])); err != nil {
				return err
			}
		}
		if next = list.Continue; next == "" {
			return nil
		}
	}
}
