package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/auth/password"
)

const (
	// freeTries is how many wrong passwords in a row cost nothing.
	freeTries = 5
	// longestLock is how long a User is locked out at most; each wrong password after the free ones doubles the time from a second.
	longestLock = 15 * time.Minute
)

// lock is how long nobody is listened to after that many wrong passwords in a row.
func lock(failures int32) time.Duration {
	over := failures - freeTries
	if over < 0 {
		return 0
	}
	if over > 20 {
		return longestLock
	}
	return min(time.Second<<over, longestLock)
}

// check returns the User whose name and password these are, or ErrLogin. Each try counts as wrong before the password is compared, so
// that many at once gain nothing; the right one clears the count.
func (s *Service) check(ctx context.Context, name, plain string) (*authv1.User, error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return nil, ErrBusy
	}
	user, err := s.count(ctx, name)
	switch {
	case errors.Is(err, ErrLogin):
		password.Spend(plain) // a refusal takes as long, whatever its reason
		return nil, err
	case err != nil:
		return nil, err
	case !password.Matches(user.Spec.Password, plain):
		return nil, ErrLogin
	}
	if err := s.patchLogin(ctx, user, "", authv1.LoginStatus{}); err != nil {
		return nil, err
	}
	return user, nil
}

// count counts a try of the User, if it may be made now.
func (s *Service) count(ctx context.Context, name string) (*authv1.User, error) {
	if !isName(name) {
		return nil, ErrLogin
	}
	for range 10 {
		user := &authv1.User{}
		err := s.live.Get(ctx, client.ObjectKey{Name: name}, user)
		if apierrors.IsNotFound(err) {
			return nil, ErrLogin
		}
		if err != nil {
			return nil, fmt.Errorf("read User %s: %w", name, err)
		}
		now := s.options.Now()
		login := user.Status.Login
		if user.Spec.Disabled || user.DeletionTimestamp != nil || user.Spec.Password == "" || login.LockedUntil != nil && now.Before(login.LockedUntil.Time) {
			return nil, ErrLogin
		}
		login.Failures++
		login.LockedUntil = nil
		if d := lock(login.Failures); d > 0 {
			// The API keeps whole seconds: round up.
			login.LockedUntil = &metav1.Time{Time: now.Add(d + time.Second - 1).Truncate(time.Second)}
		}
		err = s.patchLogin(ctx, user, user.ResourceVersion, login)
		if err == nil {
			return user, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, err
		}
	}
	return nil, ErrBusy
}

// patchLogin writes how logging in went, to the version of the User if one is given.
func (s *Service) patchLogin(ctx context.Context, user *authv1.User, version string, login authv1.LoginStatus) error {
	content := map[string]any{"failures": nil, "lockedUntil": nil}
	if login.Failures > 0 {
		content["failures"] = login.Failures
	}
	if login.LockedUntil != nil {
		content["lockedUntil"] = login.LockedUntil
	}
	patch := map[string]any{"status": map[string]any{"login": content}, "metadata": map[string]any{"uid": user.UID}}
	if version != "" {
		patch["metadata"] = map[string]any{"uid": user.UID, "resourceVersion": version}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	if err := s.live.Status().Patch(ctx, user.DeepCopy(), client.RawPatch(types.MergePatchType, data)); err != nil {
		return fmt.Errorf("count the tries of User %s: %w", user.Name, err)
	}
	return nil
}

// ChangePassword gives the User whose password it is another one. All sessions of the User end. What the API server has to say
// against the new password is in the error.
func (s *Service) ChangePassword(ctx context.Context, name, old, chosen string) error {
	user, err := s.check(ctx, name, old)
	if err != nil {
		return err
	}
	if password.Matches(user.Spec.Password, chosen) {
		return errors.New("spec.password: is the one that the User has already; choose another")
	}
	// A hash would pass as one, and its password would be unknown.
	if password.IsHash(chosen) {
		return errors.New("spec.password: is a bcrypt hash; write the password itself")
	}
	// Of several at once who know the old password one changes it: the old one is none any more for the others.
	for checked := user.Spec.Password; ; {
		data, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": user.UID, "resourceVersion": user.ResourceVersion},
			"spec":     map[string]any{"password": chosen, "mustChangePassword": nil},
		})
		if err != nil {
			return err
		}
		err = s.live.Patch(ctx, user, client.RawPatch(types.MergePatchType, data))
		switch {
		case err == nil:
			return nil
		case !apierrors.IsConflict(err):
			return fmt.Errorf("change the password of User %s: %w", name, err)
		}
		uid := user.UID
		if err := s.live.Get(ctx, client.ObjectKey{Name: name}, user); err != nil {
			return fmt.Errorf("read User %s again: %w", name, err)
		}
		if user.UID != uid || user.Spec.Password != checked {
			return ErrLogin
		}
	}
}
