package audit

import (
	"encoding/json"
	"slices"
	"time"
)

// maxBatch is how many bytes of entries are stored by one write.
const maxBatch = 32 << 10

// queue is what there is of one tenant in this process.
type queue struct {
	tenant Tenant
	// held is how much of the trail's capacity it has.
	held    int
	waiting []*waiting
	// repeats are the refusals among what waits, stored those of late, with when.
	repeats map[Entry]*waiting
	stored  map[Entry]time.Time

	// batch is being stored, for batchTenant. It stays as it is until it is, so that it can be stored again without harm.
	batch       *batch
	batchTenant Tenant
	// chunk takes the next batch; nil for a new one.
	chunk *chunk
	// grown is how many bytes were stored since what is too much was last removed.
	grown int
}

// waiting is an entry that is not stored yet.
type waiting struct {
	Entry
	// due is when it is to be.
	due time.Time
}

// batch is some entries, as text.
type batch struct {
	text        []byte
	entries     int
	from, until time.Time
}

func newQueue() *queue {
	return &queue{repeats: map[Entry]*waiting{}, stored: map[Entry]time.Time{}}
}

// add takes an entry in. A refusal that is the same as one that waits is folded into that.
func (q *queue) add(e Entry) (folded bool) {
	same, refusal := e.refusal()
	if w := q.repeats[same]; refusal && w != nil {
		if w.Since == nil {
			since := w.Time
			w.Since, w.Count = &since, 1
		}
		w.Count++
		w.Time = e.Time
		return true
	}
	w := &waiting{Entry: e, due: e.Time}
	if last, ok := q.stored[same]; ok && refusal {
		w.due = last.Add(foldFor)
	}
	q.waiting = append(q.waiting, w)
	if refusal {
		q.repeats[same] = w
	}
	return false
}

// take makes a batch of what is due, or of all, unless there is one already.
func (q *queue) take(now time.Time, all bool) error {
	for same, at := range q.stored {
		if now.Sub(at) >= foldFor {
			delete(q.stored, same)
		}
	}
	if q.batch != nil {
		return nil
	}
	b := &batch{}
	var left []*waiting
	for i, w := range q.waiting {
		if !all && w.due.After(now) {
			left = append(left, w)
			continue
		}
		text, err := json.Marshal(w.Entry)
		if err != nil {
			return err
		}
		if len(b.text)+len(text) > maxBatch {
			left = append(left, q.waiting[i:]...)
			break
		}
		b.add(text, w.Time)
		key := w.Entry
		key.Since, key.Count = nil, 0
		if same, refusal := key.refusal(); refusal {
			delete(q.repeats, same)
			q.stored[same] = now
		}
	}
	q.waiting = slices.Clip(left)
	if b.entries > 0 {
		q.batch = b
	}
	return nil
}

func (b *batch) add(line []byte, at time.Time) {
	if b.entries == 0 || at.Before(b.from) {
		b.from = at
	}
	if at.After(b.until) {
		b.until = at
	}
	b.text = append(append(b.text, line...), '\n')
	b.entries++
}

// idle tells whether nothing would be lost with the queue.
func (q *queue) idle() bool {
	return q.held == 0 && q.batch == nil && q.chunk == nil && len(q.stored) == 0
}
