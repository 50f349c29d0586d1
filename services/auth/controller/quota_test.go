package controller

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/mnicloud/mnicloud/test/apiserver"
)

// TestWhateverMembersOfATenantMayMakeHasAQuota looks at the roles of all services: objects without a bound are a way to fill the cloud.
func TestWhateverMembersOfATenantMayMakeHasAQuota(t *testing.T) {
	services, err := filepath.Glob(filepath.Join(apiserver.Root(), "services", "*", "config", "rbac", "tenant.yaml"))
	require.NoError(t, err)
	roles := append(slices.Clone(services), filepath.Join(apiserver.Root(), "services", "auth", "config", "roles", "tenant.yaml"))
	require.Greater(t, len(roles), 2)
	made := 0
	limits := hard(nil)
	for _, file := range roles {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			var role rbacv1.ClusterRole
			err := documents.Decode(&role)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			for _, rule := range role.Rules {
				if !slices.Contains(rule.Verbs, "create") {
					continue
				}
				for _, resource := range rule.Resources {
					if strings.Contains(resource, "/") {
						continue // a stream, which is no object
					}
					require.NotContains(t, rule.APIGroups, "", "%s: %s are the platform's to make", role.Name, resource)
					for _, group := range rule.APIGroups {
						require.Contains(t, limits, corev1.ResourceName("count/"+resource+"."+group), "%s lets members make what has no quota", role.Name)
						made++
					}
				}
			}
		}
	}
	require.Positive(t, made)
}
