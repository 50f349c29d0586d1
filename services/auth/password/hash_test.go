package password

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func TestAPasswordIsWhatAKeyboardMakes(t *testing.T) {
	for plain, says := range map[string]string{
		"": "is empty", "short": "shorter than 8", "with\x00nul byte": "control character", "line\nfeed line": "control character",
		strings.Repeat("x", 73): "has 73 bytes", strings.Repeat("雲", 25): "has 75 bytes", strings.Repeat("x", 100_000): "has 100000 bytes",
	} {
		_, err := Prepare(plain)
		require.ErrorContains(t, err, says)
		if len(plain) > 7 {
			require.NotContains(t, err.Error(), plain)
		}
	}
	for _, plain := range []string{"12345678", strings.Repeat("x", 72), strings.Repeat("雲", 24), "correct horse", "パスワード123", "🔑🔑"} {
		_, err := Prepare(plain)
		require.NoError(t, err, plain)
	}
}

func TestHowAKeyboardComposesDoesNotMatter(t *testing.T) {
	hash, err := Hash("pa\u0308ssword \u304c", MinCost)
	require.NoError(t, err)
	require.True(t, Matches(hash, "p\u00e4ssword \u304b\u3099"))
	require.False(t, Matches(hash, "password \u304b"))
}

// https://github.com/bcrypt-ruby/bcrypt-ruby/issues/283
func TestTwoLongPasswordsAreNotOne(t *testing.T) {
	hash, err := Hash(strings.Repeat("x", 72), MinCost)
	require.NoError(t, err)
	require.True(t, Matches(hash, strings.Repeat("x", 72)))
	require.False(t, Matches(hash, strings.Repeat("x", 73)))
}

func TestOnlyHashesOfABearableCostAreHashes(t *testing.T) {
	rest := strings.Repeat("a", 53)
	for _, cost := range []string{"10", "12", "14"} {
		require.True(t, IsHash("$2a$"+cost+"$"+rest))
	}
	for _, no := range []string{"$2a$04$" + rest, "$2a$31$" + rest, "$2x$10$" + rest, "$2a$10$" + rest + "a", "$2a$10$" + rest[1:], "x$2a$10$" + rest, "$2a$10$" + rest + "\n"} {
		require.False(t, IsHash(no), no)
	}
	_, err := Hash("correct horse", 4)
	require.Error(t, err)
	cost, err := bcrypt.Cost([]byte(nobodys))
	require.NoError(t, err)
	require.Equal(t, DefaultCost, cost)
	require.True(t, IsHash(nobodys))
}

func FuzzTheWebhookNeverLetsPlainTextThrough(f *testing.F) {
	for _, plain := range []string{"correct horse", "a\"b\\c<>&\u2028d", strings.Repeat("雲", 24), "$2a$10$short", `{"spec":{"password":"x"}}`, "metadata"} {
		f.Add(plain)
	}
	f.Fuzz(func(t *testing.T, plain string) {
		if IsHash(plain) {
			return
		}
		kept, err := json.Marshal(map[string]any{"spec": map[string]any{"password": plain, "displayName": "x"}})
		require.NoError(t, err)
		object, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"name": "ada", "annotations": map[string]string{lastApplied: string(kept)}},
			"spec":     map[string]any{"password": plain},
		})
		require.NoError(t, err)
		answer := NewWebhook(MinCost).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: object}}})
		if !answer.Allowed {
			if len(plain) > 30 {
				require.NotContains(t, answer.Result.Message, plain)
			}
			return
		}
		replaced := map[string]string{}
		for _, change := range answer.Patches {
			require.Equal(t, "replace", change.Operation)
			replaced[change.Path] = change.Value.(string)
		}
		require.True(t, Matches(replaced["/spec/password"], plain))
		require.Equal(t, "{\"spec\":{\"displayName\":\"x\"}}\n", replaced["/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration"])
	})
}
