package registry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"

	storagedriver "github.com/distribution/distribution/v3/registry/storage/driver"
)

const (
	storageRoot      = "/docker/registry/v2"
	repositoriesRoot = storageRoot + "/repositories"
	// maxManifest is the largest manifest distribution accepts, in bytes.
	maxManifest = 4 << 20
	// pushTimeout is how long a blob that was touched by a push stays although no manifest names it.
	pushTimeout = time.Hour
)

var (
	digestPattern = regexp.MustCompile(`sha256:[a-f0-9]{64}`)
	apiPattern    = regexp.MustCompile(`^/v2/(.+)/(blobs|manifests)/(.+)$`)
	storedDigest  = regexp.MustCompile(`/sha256/(?:[a-f0-9]{2}/)?([a-f0-9]{64})(?:/|$)`)
)

// pushes remembers which blobs and manifests the pushes under way count on: a push first uploads blobs, or asks whether
// they are there, and only at its end writes the manifest that refers to them. Entries are made before the request is
// answered, so that a sweep either removes a blob before a client is told of it or not at all.
type pushes struct {
	driver storagedriver.StorageDriver
	now    func() time.Time

	mu sync.Mutex
	// touched is by digest, then repository.
	touched map[string]map[string]time.Time
}

func newPushes(driver storagedriver.StorageDriver) *pushes {
	return &pushes{driver: driver, now: time.Now, touched: map[string]map[string]time.Time{}}
}

// track notes what requests to next mean for a push, if the request is from someone trusted.
func (p *pushes) track(next http.Handler, trusted func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		match := apiPattern.FindStringSubmatch(r.URL.Path)
		if match == nil || r.Method == http.MethodGet || !trusted(r) {
			next.ServeHTTP(w, r)
			return
		}
		repository, kind, reference := match[1], match[2], match[3]
		if kind == "manifests" && r.Method == http.MethodPut {
			p.putManifest(w, r, next, repository, reference)
			return
		}
		query := r.URL.Query()
		switch {
		case r.Method == http.MethodHead && strings.HasPrefix(reference, "sha256:"):
			p.touch(r.Context(), repository, reference)
		case r.Method == http.MethodPost && query.Get("mount") != "":
			p.touch(r.Context(), repository, query.Get("mount"))
		case (r.Method == http.MethodPut || r.Method == http.MethodPost) && query.Get("digest") != "":
			p.touch(r.Context(), repository, query.Get("digest"))
		}
		next.ServeHTTP(w, r)
	})
}

// putManifest keeps everything a manifest names until it is stored. With a tag, the push is over and what it touched is
// held by the manifest alone; by digest, it is a part of an index still to come.
func (p *pushes) putManifest(w http.ResponseWriter, r *http.Request, next http.Handler, repository, reference string) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxManifest+1))
	if err != nil {
		http.Error(w, "reading the manifest: "+err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	names := digestPattern.FindAllString(string(body), -1)
	if strings.HasPrefix(reference, "sha256:") {
		names = append(names, reference)
	}
	p.touch(r.Context(), repository, names...)
	answer := &statusRecorder{ResponseWriter: w}
	next.ServeHTTP(answer, r)
	if answer.status == http.StatusCreated && !strings.HasPrefix(reference, "sha256:") {
		p.release(r.Context(), repository, names)
	}
}

// touch notes that a push to repository counts on digests and, if they are stored manifests, on what these name.
func (p *pushes) touch(ctx context.Context, repository string, digests ...string) {
	p.visit(ctx, digests, func(digest string) {
		if p.touched[digest] == nil {
			p.touched[digest] = map[string]time.Time{}
		}
		p.touched[digest][repository] = p.now()
	})
}

// release forgets what a finished push to repository counted on.
func (p *pushes) release(ctx context.Context, repository string, digests []string) {
	p.visit(ctx, digests, func(digest string) {
		delete(p.touched[digest], repository)
		if len(p.touched[digest]) == 0 {
			delete(p.touched, digest)
		}
	})
}

// visit calls do, under the lock, for digests and everything that stored manifests among them name, each once.
func (p *pushes) visit(ctx context.Context, digests []string, do func(digest string)) {
	visited := map[string]bool{}
	for len(digests) > 0 {
		digest := digests[0]
		digests = digests[1:]
		if visited[digest] {
			continue
		}
		visited[digest] = true
		p.mu.Lock()
		do(digest)
		p.mu.Unlock()
		digests = append(digests, p.named(ctx, digest)...)
	}
}

// named lists the digests that a stored manifest names; none when digest is not a manifest's.
func (p *pushes) named(ctx context.Context, digest string) []string {
	hex, ok := strings.CutPrefix(digest, "sha256:")
	if !ok || len(hex) != 64 {
		return nil
	}
	file := path.Join(storageRoot, "blobs/sha256", hex[:2], hex, "data")
	info, err := p.driver.Stat(ctx, file)
	if err != nil || info.IsDir() || info.Size() > maxManifest {
		return nil
	}
	content, err := p.driver.GetContent(ctx, file)
	if err != nil || !bytes.HasPrefix(content, []byte("{")) || !bytes.Contains(content, []byte(`"schemaVersion"`)) {
		return nil
	}
	return digestPattern.FindAllString(string(content), -1)
}

// needs tells whether a push counts on digest; in any repository when repository is empty. Old entries are dropped.
// The caller holds mu.
func (p *pushes) needs(repository, digest string) bool {
	oldest := p.now().Add(-pushTimeout)
	for name, at := range p.touched[digest] {
		if at.Before(oldest) {
			delete(p.touched[digest], name)
		}
	}
	if len(p.touched[digest]) == 0 {
		delete(p.touched, digest)
		return false
	}
	if repository == "" {
		return true
	}
	_, ok := p.touched[digest][repository]
	return ok
}

// sparingDriver is the storage as the sweep sees it: deleting what a push under way counts on does nothing.
type sparingDriver struct {
	storagedriver.StorageDriver
	pushes *pushes
}

// Delete removes the blob, manifest or link at file unless a push needs it.
func (d sparingDriver) Delete(ctx context.Context, file string) error {
	match := storedDigest.FindStringSubmatch(file)
	if match == nil {
		return d.StorageDriver.Delete(ctx, file)
	}
	repository := ""
	if below, ok := strings.CutPrefix(file, repositoriesRoot+"/"); ok {
		repository, _, _ = strings.Cut(below, "/_")
	}
	// Held while deleting: a request that touches the blob meanwhile is answered afterwards.
	d.pushes.mu.Lock()
	defer d.pushes.mu.Unlock()
	if d.pushes.needs(repository, "sha256:"+match[1]) {
		return nil
	}
	return d.StorageDriver.Delete(ctx, file)
}

// statusRecorder remembers the status of an answer.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (s *statusRecorder) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the real writer.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func isPathNotFound(err error) bool {
	var notFound storagedriver.PathNotFoundError
	return errors.As(err, &notFound)
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
