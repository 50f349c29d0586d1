package password

import (
	"errors"
	"fmt"
	"regexp"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/text/secure/precis"
)

const (
	// MinBytes is the length of the shortest password, in UTF-8, prepared.
	MinBytes = 8
	// MaxBytes is the length of the longest. bcrypt ignores what is behind the 72nd byte, so that two long passwords would be one.
	MaxBytes = 72
	// MinCost is the least cost of a hash: each step doubles the time of a login (cost 12 takes about a quarter of a second).
	MinCost = 10
	// MaxCost is the greatest cost of a hash.
	MaxCost = 14
	// DefaultCost is the cost of new hashes.
	DefaultCost = 12
)

// hash is what the definition of User admits too.
var hash = regexp.MustCompile(`^[$]2[aby][$]1[0-4][$][./A-Za-z0-9]{53}$`)

// IsHash tells whether s is a bcrypt hash of a cost from MinCost to MaxCost.
func IsHash(s string) bool { return hash.MatchString(s) }

// Prepare brings plain text to the one form in which it is hashed and compared (RFC 8265, OpaqueString): what one keyboard
// composes and another does not is the same password. The error says what is wrong, and does not repeat the plain text.
func Prepare(plain string) (string, error) {
	if len(plain) > 16*MaxBytes {
		return "", tooLong(len(plain))
	}
	prepared, err := precis.OpaqueString.String(plain)
	if err != nil {
		return "", errors.New("has a character that no keyboard makes, such as a control character, or is empty; choose another")
	}
	switch n := len(prepared); {
	case n < MinBytes:
		return "", fmt.Errorf("is shorter than %d bytes; choose a longer one", MinBytes)
	case n > MaxBytes:
		return "", tooLong(n)
	}
	return prepared, nil
}

func tooLong(n int) error {
	return fmt.Errorf("has %d bytes in UTF-8 and may have at most %d (%d Japanese characters): bcrypt would ignore the rest; choose a shorter one",
		n, MaxBytes, MaxBytes/3)
}

// Hash hashes plain text with the cost.
func Hash(plain string, cost int) (string, error) {
	if cost < MinCost || cost > MaxCost {
		return "", fmt.Errorf("the cost of a hash is from %d to %d, not %d", MinCost, MaxCost, cost)
	}
	prepared, err := Prepare(plain)
	if err != nil {
		return "", err
	}
	made, err := bcrypt.GenerateFromPassword([]byte(prepared), cost)
	if err != nil {
		return "", fmt.Errorf("hash: %w", err)
	}
	return string(made), nil
}

// Matches tells whether the hash is that of the plain text.
func Matches(hash, plain string) bool {
	prepared, err := Prepare(plain)
	return err == nil && IsHash(hash) && bcrypt.CompareHashAndPassword([]byte(hash), []byte(prepared)) == nil
}

// nobodys is the hash of a password that nobody has.
const nobodys = "$2a$12$C6UzMDM.H6dfI/f/IKcEeO7ZVq8zFy4gSx4oZ4dV0cM5y1pQx0xZe"

// Spend takes as long as Matches does with a hash of the default cost, so that a user who does not exist is not told by the time.
func Spend(plain string) { _ = Matches(nobodys, plain) }
