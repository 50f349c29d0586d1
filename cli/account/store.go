package account

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultProfile is the profile that is meant when none is named.
const DefaultProfile = "default"

// ErrNoLogin says that a profile has no session.
var ErrNoLogin = errors.New("not logged in")

// Session is a login, as it is kept.
type Session struct {
	// Server is where the gateway is: https://HOST:PORT.
	Server string `json:"server"`
	// Authority is the certificate of who signed the gateway's, PEM; empty means the system's authorities.
	Authority string `json:"authority,omitempty"`
	// User is empty for a service account.
	User           string `json:"user,omitempty"`
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// Tenant is the one that is worked in unless another is named; empty: none was chosen.
	Tenant string `json:"tenant,omitempty"`
	Tokens
}

// ByToken tells whether it is no session of the gateway's but an API token, which was given.
func (s Session) ByToken() bool { return s.Refresh == "" }

// Who is whose session it is, in words.
func (s Session) Who() string {
	if s.ServiceAccount != "" {
		return "service account " + s.ServiceAccount
	}
	return s.User
}

// Client is a client of the session's gateway.
func (s Session) Client() (*Client, error) { return NewClient(s.Server, s.Authority) }

// Store keeps profiles in a folder.
type Store struct{ Dir string }

// UserStore is the store of the user who runs this program: mni/profiles in the folder of the user's settings.
func UserStore() (Store, error) {
	settings, err := os.UserConfigDir()
	if err != nil {
		return Store{}, fmt.Errorf("where to keep logins: %w", err)
	}
	return Store{Dir: filepath.Join(settings, "mni", "profiles")}, nil
}

var profileName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ValidateProfile says what is wrong with a profile's name.
func ValidateProfile(name string) error {
	if !profileName.MatchString(name) {
		return fmt.Errorf("profile %q: a name is of 1 to 63 lower-case letters, digits and '-', which does not begin or end it", name)
	}
	return nil
}

func (s Store) file(profile string) string { return filepath.Join(s.Dir, profile+".json") }

// Read reads the session of a profile; ErrNoLogin when there is none.
func (s Store) Read(profile string) (Session, error) {
	var session Session
	if err := ValidateProfile(profile); err != nil {
		return session, err
	}
	content, err := os.ReadFile(s.file(profile))
	if errors.Is(err, fs.ErrNotExist) {
		return session, ErrNoLogin
	}
	if err != nil {
		return session, fmt.Errorf("read the login: %w", err)
	}
	if err := json.Unmarshal(content, &session); err != nil || session.Server == "" {
		return session, fmt.Errorf("the login in %s cannot be read: remove the file and log in again", s.file(profile))
	}
	return session, nil
}

// Write keeps the session of a profile, for its owner's eyes only.
func (s Store) Write(profile string, session Session) error {
	unlock, err := s.lock(profile)
	if err != nil {
		return err
	}
	defer unlock()
	return s.write(profile, session)
}

// SetTenant keeps which tenant is worked in unless another is named; empty means that none is.
func (s Store) SetTenant(profile, tenant string) error {
	unlock, err := s.lock(profile)
	if err != nil {
		return err
	}
	defer unlock()
	session, err := s.Read(profile)
	if err != nil {
		return err
	}
	session.Tenant = tenant
	return s.write(profile, session)
}

// write is Write for who holds the lock.
func (s Store) write(profile string, session Session) error {
	content, err := json.MarshalIndent(session, "", "  ")
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(s.Dir, "."+profile+".") // 0600
	if err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.Write(append(content, '\n'))
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), s.file(profile))
	}
	if err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	return nil
}

// Remove forgets the session of a profile.
func (s Store) Remove(profile string) error {
	unlock, err := s.lock(profile)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.Remove(s.file(profile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the login: %w", err)
	}
	return nil
}

// Profiles are the names of the profiles that have a session, sorted.
func (s Store) Profiles() []string {
	files, _ := filepath.Glob(filepath.Join(s.Dir, "*.json"))
	var names []string
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".json"); ValidateProfile(name) == nil {
			names = append(names, name)
		}
	}
	return names
}

// lock lets one process at a time change a profile. The kernel releases it when the process dies. Its file stays.
func (s Store) lock(profile string) (unlock func(), err error) {
	if err := ValidateProfile(profile); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep the login: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(s.Dir, profile+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("keep the login: %w", err)
	}
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the login: %w", err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}
