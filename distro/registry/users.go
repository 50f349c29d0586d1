package registry

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"github.com/mnicloud/mnicloud/distro/instance"
)

// maxPassword is the longest password bcrypt can hash, in bytes.
const maxPassword = 72

var userPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$`)

// htpasswd is a file of "user:hash" lines, in order.
type htpasswd []htpasswdLine

type htpasswdLine struct{ user, hash string }

func readHTPasswd(path string) (htpasswd, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file htpasswd
	for number, line := range strings.Split(string(content), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		user, hash, ok := strings.Cut(line, ":")
		if _, err := bcrypt.Cost([]byte(hash)); !ok || err != nil {
			return nil, fmt.Errorf("%s line %d: not USER:HASH with a bcrypt hash (htpasswd -B makes one)", path, number+1)
		}
		file = append(file, htpasswdLine{user, hash})
	}
	return file, nil
}

func (f htpasswd) hashes() map[string]string {
	hashes := make(map[string]string, len(f))
	for _, line := range f {
		hashes[line.user] = line.hash
	}
	return hashes
}

func (f htpasswd) without(user string) htpasswd {
	return slices.DeleteFunc(slices.Clone(f), func(line htpasswdLine) bool { return line.user == user })
}

// with sets a password; cost is bcrypt's.
func (f htpasswd) with(user, password string, cost int) (htpasswd, error) {
	if len(password) < 8 || len(password) > maxPassword {
		return nil, fmt.Errorf("password of %s: between 8 and %d bytes, please", user, maxPassword)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), cost)
	if err != nil {
		return nil, err
	}
	return append(f.without(user), htpasswdLine{user, string(hash)}), nil
}

func (f htpasswd) write(path string) error {
	var content bytes.Buffer
	for _, line := range f {
		fmt.Fprintf(&content, "%s:%s\n", line.user, line.hash)
	}
	return instance.WriteFile(path, content.Bytes(), 0o600)
}

// AddUser gives a user, new or not, a password. The first user of an instance turns authentication on; the cloud's own
// accounts come in with it.
func (s State) AddUser(name, password string) error {
	if !userPattern.MatchString(name) {
		return fmt.Errorf("user name %q: letters, digits and . _ @ - only, at most 63", name)
	}
	if name == MachineUser || name == NodeUser {
		return fmt.Errorf("user name %q is the cloud's own; choose another", name)
	}
	own, err := s.Credentials()
	if err != nil {
		return err
	}
	unlock, err := instance.Lock(s.HTPasswdFile() + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	file, err := readHTPasswd(s.HTPasswdFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	hashes := file.hashes()
	// These passwords are random and long: a slow hash would only slow every pull of a node.
	for _, account := range []struct{ name, password string }{{MachineUser, own.Machine}, {NodeUser, own.Node}} {
		if bcrypt.CompareHashAndPassword([]byte(hashes[account.name]), []byte(account.password)) == nil {
			continue
		}
		if file, err = file.with(account.name, account.password, bcrypt.MinCost); err != nil {
			return err
		}
	}
	if file, err = file.with(name, password, bcrypt.DefaultCost); err != nil {
		return err
	}
	return file.write(s.HTPasswdFile())
}

// RemoveUser takes a user's access away. Authentication stays on when nobody is left.
func (s State) RemoveUser(name string) error {
	if name == MachineUser || name == NodeUser {
		return fmt.Errorf("user %q is the cloud's own and stays", name)
	}
	unlock, err := instance.Lock(s.HTPasswdFile() + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	file, err := readHTPasswd(s.HTPasswdFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	left := file.without(name)
	if len(left) == len(file) {
		return fmt.Errorf("no user %q; `mni registry user ls` lists them", name)
	}
	return left.write(s.HTPasswdFile())
}

// Users lists the users, without the cloud's own accounts. on is false while authentication is off.
func (s State) Users() (names []string, on bool, err error) {
	file, err := readHTPasswd(s.HTPasswdFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	for _, line := range file {
		if line.user != MachineUser && line.user != NodeUser {
			names = append(names, line.user)
		}
	}
	slices.Sort(names)
	return names, err == nil, err
}

// TurnOffAuthentication removes all users and opens the registry to whoever reaches it.
func (s State) TurnOffAuthentication() error {
	return ignoreNotExist(os.Remove(s.HTPasswdFile()))
}
