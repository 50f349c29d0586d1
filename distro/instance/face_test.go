package instance

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhereTheAPIIsServedBesideIsAnAddressWithACertificate(t *testing.T) {
	face, err := ParseFace("192.0.2.10:443", "", "")
	require.NoError(t, err)
	require.Equal(t, "192.0.2.10:443", face.Address.String())
	_, err = ParseFace("[2001:db8::1]:443", "", "")
	require.NoError(t, err)
	wrong := filepath.Join(t.TempDir(), "x")
	require.NoError(t, os.WriteFile(wrong, []byte("no certificate"), 0o600))
	for _, bad := range [][3]string{
		{"192.0.2.10"},
		{"cloud.example.com:443"},
		{"192.0.2.10:0"},
		{":443"},
		{"192.0.2.10:99999"},
		{"224.0.0.1:443"},
		{"[fe80::1%eth0]:443"},
		{"0.0.0.0:443"},
		{"[::]:443"},
		{"192.0.2.10:443", wrong, ""},
		{"192.0.2.10:443", "", wrong},
		{"192.0.2.10:443", wrong, wrong},
		{"192.0.2.10:443", "/nonexistent", "/nonexistent"},
	} {
		_, err := ParseFace(bad[0], bad[1], bad[2])
		require.ErrorContains(t, err, "--api", bad)
	}
}
