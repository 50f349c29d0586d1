package cloud

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/distro/instance"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

// Login is the first administrator's.
type Login struct {
	// User is the name of the User, Password its first password.
	User     string `json:"user"`
	Password string `json:"password"`
	// Made says that the User has been made: it is not made again when its owner deletes it.
	Made bool `json:"made,omitempty"`
}

// administratorFile is the owner's only.
func (c Cloud) administratorFile() string {
	return filepath.Join(c.Instance.StateDir(), "administrator.json")
}

// administrator makes the cloud's first administrator, once in the life of the instance, and returns the login; nil when it was made
// before. The password is written to the file, the owner's only, before the User is made, so that a start that is cut off goes on with it.
func administrator(ctx context.Context, config *rest.Config, file string) (*Login, error) {
	login := Login{User: "admin", Password: rand.Text()}
	content, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := writeLogin(file, login); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("read the first administrator's login: %w", err)
	default:
		if err := json.Unmarshal(content, &login); err != nil {
			return nil, fmt.Errorf("read the first administrator's login, %s: %w", file, err)
		}
	}
	if login.Made {
		return nil, nil
	}
	scheme := runtime.NewScheme()
	if err := authv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	err = api.Create(ctx, &authv1.User{
		ObjectMeta: metav1.ObjectMeta{Name: login.User},
		Spec:       authv1.UserSpec{DisplayName: "Administrator", Password: login.Password, Administrator: true},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("make the first administrator: %w", err)
	}
	login.Made = true
	return &login, writeLogin(file, login)
}

func writeLogin(file string, login Login) error {
	content, err := json.Marshal(login)
	if err != nil {
		return err
	}
	return instance.WriteFile(file, append(content, '\n'), 0o600)
}
