package images

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/distro/instance"
)

func TestTheEnvironmentNamesTheCloudWhoseImagesAreMeant(t *testing.T) {
	require.Equal(t, instance.Default, Command().PersistentFlags().Lookup("instance").DefValue)
	t.Setenv(instance.Variable, "shop")
	require.Equal(t, "shop", Command().PersistentFlags().Lookup("instance").DefValue)
}
