package packages

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryPackageIsNamedOnceAndSaysWhatItIsFor(t *testing.T) {
	require.NotEmpty(t, Runtime())
	require.NotEmpty(t, Development())
	seen := map[string]bool{}
	for _, p := range append(Runtime(), Development()...) {
		require.Regexp(t, `^[a-z0-9][a-z0-9+.-]+$`, p.Name, "Debian Policy 5.6.1")
		require.Greater(t, len(p.Reason), 20, "%s says in a sentence what it is for", p.Name)
		require.False(t, seen[p.Name], "%s is listed twice", p.Name)
		seen[p.Name] = true
	}
}

func TestTheDocumentsNameEveryPackageThatIsInstalledOnAMachine(t *testing.T) {
	for _, page := range []string{"machine.md", "ja/machine.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
		require.NoError(t, err)
		var documented []string
		for line := range strings.Lines(string(text)) {
			if cells := strings.Split(line, "|"); len(cells) == 4 {
				documented = append(documented, strings.FieldsFunc(cells[1], func(r rune) bool { return strings.ContainsRune(" ,、", r) })...)
			}
		}
		for _, p := range Runtime() {
			require.Contains(t, documented, p.Name, "docs/%s says in its table of packages what %s is for", page, p.Name)
		}
	}
}

func TestAPackageIsMissingUnlessItIsInstalledOrItsProgramsAreThere(t *testing.T) {
	wanted := []Package{
		{Name: "containerd", Programs: []string{"containerd", "ctr"}},
		{Name: "ca-certificates"},
	}
	for name, c := range map[string]struct {
		have    map[string]bool
		onPath  []string
		missing []string
	}{
		"nothing there":                           {missing: []string{"containerd", "ca-certificates"}},
		"both installed":                          {have: map[string]bool{"containerd": true, "ca-certificates": true}},
		"programs of another origin":              {onPath: []string{"containerd", "ctr"}, missing: []string{"ca-certificates"}},
		"only some of the programs":               {onPath: []string{"ctr"}, missing: []string{"containerd", "ca-certificates"}},
		"a package without programs is installed": {have: map[string]bool{"ca-certificates": true}, missing: []string{"containerd"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := missing(wanted, c.have, func(program string) bool {
				for _, p := range c.onPath {
					if p == program {
						return true
					}
				}
				return false
			})
			require.ElementsMatch(t, c.missing, Names(got))
		})
	}
}

func TestARemovedPackageWithLeftConfigurationIsNotInstalled(t *testing.T) {
	have := parseInstalled("runc installed\ncontainerd config-files\nnftables half-configured\n")
	require.Equal(t, map[string]bool{"runc": true}, have)
}

func TestInstallDoesNothingWhenNothingIsMissing(t *testing.T) {
	got, err := Install(t.Context(), nil, os.Stderr)
	require.NoError(t, err)
	require.Empty(t, got)
}

// root is an empty file system with the folder of policy-rc.d.
func root(t *testing.T) (dir, policy string) {
	dir = t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "usr", "sbin"), 0o755))
	return dir, filepath.Join(dir, policyPath)
}

func TestServicesAreForbiddenOnlyUntilRestored(t *testing.T) {
	dir, policy := root(t)
	restore, err := forbidServices(dir)
	require.NoError(t, err)
	var exit *exec.ExitError
	require.ErrorAs(t, exec.Command(policy, "containerd", "start").Run(), &exit)
	require.Equal(t, 101, exit.ExitCode())
	require.NoError(t, restore())
	entries, err := os.ReadDir(filepath.Dir(policy))
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestTheMachinesOwnPolicyComesBackAsItWas(t *testing.T) {
	dir, policy := root(t)
	own := []byte("#!/bin/sh\nexit 0\n")
	require.NoError(t, os.WriteFile(policy, own, 0o750))
	restore, err := forbidServices(dir)
	require.NoError(t, err)
	during, err := os.ReadFile(policy)
	require.NoError(t, err)
	require.Equal(t, policyScript, during)
	require.NoError(t, restore())
	after, err := os.ReadFile(policy)
	require.NoError(t, err)
	require.Equal(t, own, after)
	info, err := os.Stat(policy)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o750), info.Mode().Perm())
}

func TestAnInterruptedInstallationIsPutRightByTheNext(t *testing.T) {
	dir, policy := root(t)
	own := []byte("#!/bin/sh\nexit 0\n")
	require.NoError(t, os.WriteFile(policy, own, 0o755))
	_, err := forbidServices(dir) // never restored: the process was killed
	require.NoError(t, err)
	restore, err := forbidServices(dir)
	require.NoError(t, err)
	require.NoError(t, restore())
	after, err := os.ReadFile(policy)
	require.NoError(t, err)
	require.Equal(t, own, after)
	require.NoFileExists(t, filepath.Join(dir, policySaved))
}

func TestAFailedInstallationSaysWhatToDo(t *testing.T) {
	failed := errors.New("exit status 100")
	for name, c := range map[string]struct {
		said string
		err  error
		want []string
	}{
		"not a Debian machine":    {err: exec.ErrNotFound, want: []string{"Debian 12"}},
		"an unknown package":      {said: "E: Unable to locate package runc\n", err: failed, want: []string{"runc", "/etc/apt/sources.list"}},
		"a package in the way":    {said: "E: Packages need to be removed but remove is disabled.\n", err: failed, want: []string{"nothing was changed"}},
		"another package manager": {said: "E: Could not get lock /var/lib/dpkg/lock-frontend\n", err: failed, want: []string{"wait for it"}},
		"a full disk":             {said: "E: You don't have enough free space in /var/cache/apt/archives/.\n", err: failed, want: []string{"disk is full"}},
		"no network":              {said: "Err:1\nE: Failed to fetch x  Could not resolve\n", err: failed, want: []string{"network"}},
		"anything else":           {said: "Reading...\nE: Sub-process returned an error code (1)\n", err: failed, want: []string{"exit status 100", "Sub-process"}},
		"anything without errors": {said: "Reading...\nKilled\n", err: failed, want: []string{"Killed"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := explain([]string{"runc"}, c.said, c.err)
			for _, words := range c.want {
				require.ErrorContains(t, err, words)
			}
		})
	}
	require.NoError(t, explain([]string{"runc"}, "fine", nil))
}

func TestFreshListsAreFetchedOnlyWhenTheyMayHelp(t *testing.T) {
	require.True(t, staleLists("E: Unable to locate package runc"))
	require.True(t, staleLists("Err:4 runc 404  Not Found"))
	require.False(t, staleLists("E: Could not get lock"))
}
