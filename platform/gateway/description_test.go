package gateway

import (
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
)

func TestWhatIsNoKindsIsDescribedWithAllItsParameters(t *testing.T) {
	document, err := openapi3.NewLoader().LoadFromData(ownDescription)
	require.NoError(t, err)
	require.NoError(t, document.Validate(t.Context()))
	parameters := func(o *openapi3.Operation) (names []string) {
		for _, p := range o.Parameters {
			names = append(names, p.Value.Name)
		}
		return names
	}
	require.ElementsMatch(t, auditParameters, parameters(document.Paths.Find("/"+auditPath).Get))
	require.ElementsMatch(t, append([]string{"namespace", "force"}, writing...), parameters(document.Paths.Find("/"+applyPath).Post))
}
