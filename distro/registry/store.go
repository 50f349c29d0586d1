package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/distribution/distribution/v3/registry/auth"
	"github.com/distribution/distribution/v3/registry/handlers"
	"github.com/distribution/distribution/v3/registry/storage"
	"github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

// CollectPath starts a garbage collection by POST and answers with a Collected when it is done. With `?untagged=true`
// manifests without a tag go too.
const CollectPath = "/-/collect"

// How often abandoned uploads and unreferenced blobs are removed, and how old an abandoned upload is.
const (
	maintenanceInterval = 24 * time.Hour
	abandonedUpload     = 24 * time.Hour
)

// Collected is what a garbage collection did.
type Collected struct {
	// FreedBytes is by how much the registry's files shrank.
	FreedBytes int64 `json:"freedBytes"`
	// UsedBytes is what the registry's files hold now.
	UsedBytes int64 `json:"usedBytes"`
}

// store is one data directory: distribution's application on it, and its garbage collection.
type store struct {
	dataDir string
	log     *slog.Logger
	app     *handlers.App
	driver  *filesystem.Driver
	access  auth.AccessController // nil without authentication
	pushes  *pushes

	collecting sync.Mutex
}

func newStore(ctx context.Context, cfg Config) (*store, error) {
	app, err := newApp(ctx, cfg)
	if err != nil {
		return nil, err
	}
	driver, err := newDriver(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	s := &store{dataDir: cfg.DataDir, log: cfg.Log, app: app, driver: driver, pushes: newPushes(driver)}
	if cfg.HTPasswdFile != "" {
		s.access = newAccessController(cfg.HTPasswdFile)
	}
	return s, nil
}

func (s *store) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+HealthPath, health(s.dataDir))
	mux.HandleFunc("POST "+CollectPath, s.serveCollect)
	mux.Handle("/v2/", s.pushes.track(s.app, s.authenticated))
	return mux
}

// authenticated tells whether a request has valid credentials, or needs none. What it may do is the application's to say.
func (s *store) authenticated(r *http.Request) bool {
	if s.access == nil {
		return true
	}
	_, err := s.access.Authorized(r)
	return err == nil
}

// maintain removes abandoned uploads and garbage, soon after the start and then once a day, until ctx is done.
func (s *store) maintain(ctx context.Context) {
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(maintenanceInterval)
		if _, errs := storage.PurgeUploads(ctx, s.driver, time.Now().Add(-abandonedUpload), true); len(errs) > 0 && ctx.Err() == nil {
			s.log.Warn("registry: purging abandoned uploads", "error", errs[0])
		}
		if _, err := s.collect(ctx, false); err != nil && ctx.Err() == nil {
			s.log.Warn("registry: garbage collection", "error", err)
		}
	}
}

func (s *store) serveCollect(w http.ResponseWriter, r *http.Request) {
	if s.access != nil {
		whole := auth.Access{Resource: auth.Resource{Type: "registry", Name: "catalog"}, Action: "*"}
		if _, err := s.access.Authorized(r, whole); err != nil {
			var challenge auth.Challenge
			if errors.As(err, &challenge) {
				challenge.SetHeaders(r, w)
			}
			http.Error(w, "authentication required", http.StatusUnauthorized)
			return
		}
	}
	result, err := s.collect(r.Context(), r.URL.Query().Get("untagged") == "true")
	if err != nil {
		s.log.Error("registry: garbage collection", "error", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(result)
}

// collect removes what no manifest refers to and no push under way needs. One collection runs at a time. A manifest
// deleted between two of its steps makes it fail; it is then simply run again.
func (s *store) collect(ctx context.Context, untagged bool) (Collected, error) {
	s.collecting.Lock()
	defer s.collecting.Unlock()
	before, err := diskUsage(s.dataDir)
	if err != nil {
		return Collected{}, err
	}
	for attempt := 1; ; attempt++ {
		if err = s.markAndSweep(ctx, untagged); err == nil || attempt == 3 || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return Collected{}, fmt.Errorf("garbage collection: %w", err)
	}
	after, err := diskUsage(s.dataDir)
	return Collected{FreedBytes: max(before-after, 0), UsedBytes: after}, err
}

func (s *store) markAndSweep(ctx context.Context, untagged bool) error {
	namespace, err := storage.NewRegistry(ctx, s.driver, storage.EnableDelete)
	if err != nil {
		return err
	}
	if _, err := s.driver.Stat(ctx, repositoriesRoot); isPathNotFound(err) {
		return nil // nothing was ever pushed
	}
	sweeper := sparingDriver{StorageDriver: s.driver, pushes: s.pushes}
	return storage.MarkAndSweep(ctx, sweeper, namespace, storage.GCOpts{RemoveUntagged: untagged, Quiet: true})
}

// diskUsage is the sum of the sizes of the files below dir, in bytes. Files that vanish meanwhile do not count.
func diskUsage(dir string) (int64, error) {
	var total int64
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return ignoreNotExist(err)
		}
		info, err := entry.Info()
		if err != nil {
			return ignoreNotExist(err)
		}
		total += info.Size()
		return nil
	})
	return total, err
}
