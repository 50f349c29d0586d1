package registry

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/distribution/distribution/v3/registry/auth"
	"golang.org/x/crypto/bcrypt"
)

// The cloud's own accounts; see the package comment.
const (
	// MachineUser may do everything.
	MachineUser = "machine"
	// NodeUser may pull what is below SystemPrefix.
	NodeUser = "node"
)

// SystemPrefix is where the cloud's own images are, in repository names.
const SystemPrefix = "mni/"

const accessControllerName = "mni-htpasswd"

func init() {
	err := auth.Register(accessControllerName, func(options map[string]any) (auth.AccessController, error) {
		path, ok := options["path"].(string)
		if !ok {
			return nil, errors.New("path of the htpasswd file is missing")
		}
		return newAccessController(path), nil
	})
	if err != nil {
		panic(err)
	}
}

// accessController grants requests by an htpasswd file with bcrypt hashes. Unlike distribution's own it takes an absent
// file as "no authentication", knows what NodeUser may do, and does not hash again a password it has just seen.
type accessController struct {
	path string

	mu       sync.Mutex
	modified time.Time
	hashes   map[string]string // by user
	seen     map[[sha256.Size]byte]bool
	dummy    []byte
}

func newAccessController(path string) *accessController {
	return &accessController{path: path}
}

// Authorized implements auth.AccessController.
func (c *accessController) Authorized(r *http.Request, access ...auth.Access) (*auth.Grant, error) {
	hashes, err := c.users()
	if errors.Is(err, fs.ErrNotExist) {
		return &auth.Grant{}, nil
	}
	if err != nil {
		return nil, err
	}
	user, password, ok := r.BasicAuth()
	if !ok || !c.matches(hashes, user, password) {
		return nil, challenge{}
	}
	if user == NodeUser && !nodeMay(access) {
		return nil, challenge{}
	}
	return &auth.Grant{User: auth.UserInfo{Name: user}}, nil
}

// nodeMay tells whether every access is a pull below SystemPrefix. No access at all is the API's version check.
func nodeMay(access []auth.Access) bool {
	for _, a := range access {
		if a.Type != "repository" || a.Action != "pull" || !strings.HasPrefix(a.Name, SystemPrefix) {
			return false
		}
	}
	return true
}

// users reads the file again when it changed.
func (c *accessController) users() (map[string]string, error) {
	info, err := os.Stat(c.path)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hashes != nil && c.modified.Equal(info.ModTime()) {
		return c.hashes, nil
	}
	file, err := readHTPasswd(c.path)
	if err != nil {
		return nil, err
	}
	c.hashes, c.modified, c.seen = file.hashes(), info.ModTime(), map[[sha256.Size]byte]bool{}
	return c.hashes, nil
}

// matches compares password with the user's hash. bcrypt is slow on purpose, and a pull is many requests, so a
// combination that matched is remembered until the file changes. An unknown user costs as much time as a known one.
func (c *accessController) matches(hashes map[string]string, user, password string) bool {
	hash, known := hashes[user]
	key := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", user, hash, password))
	c.mu.Lock()
	seen := c.seen[key]
	if c.dummy == nil && !known {
		c.dummy, _ = bcrypt.GenerateFromPassword([]byte("nobody"), bcrypt.DefaultCost)
	}
	dummy := c.dummy
	c.mu.Unlock()
	if seen {
		return true
	}
	if !known {
		_ = bcrypt.CompareHashAndPassword(dummy, []byte(password))
		return false
	}
	if bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) != nil {
		return false
	}
	c.mu.Lock()
	c.seen[key] = true
	c.mu.Unlock()
	return true
}

// challenge asks for HTTP Basic credentials (RFC 7617).
type challenge struct{}

// Error implements error.
func (challenge) Error() string { return "user name and password of the registry required" }

// SetHeaders implements auth.Challenge.
func (challenge) SetHeaders(_ *http.Request, w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Basic realm="`+Name+`"`)
}
