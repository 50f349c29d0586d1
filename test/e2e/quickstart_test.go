//go:build e2e

package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheQuickStartRunsAsTenantsUsersAndAgain(t *testing.T) {
	t.Parallel()
	root := filepath.Dir(binaries)
	t.Cleanup(func() {
		for _, what := range []string{"tenant/red tenant/blue", "user/red-user user/blue-user"} {
			args := append(append([]string{"delete"}, strings.Fields(what)...), "--instance", instance, "--yes", "--cascade", "--timeout", "2m")
			if out, err := exec.CommandContext(context.Background(), filepath.Join(binaries, "mni"), args...).CombinedOutput(); err != nil {
				t.Errorf("mni %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		}
	})
	for _, run := range []string{"first", "second"} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "quickstart"), instance)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("the %s quick start: %v\n%s", run, err, out)
		}
		for _, answer := range []string{"I am blue-web-1 on node-1", "I am blue-web-2 on node-2", "I am red-web-1 on node-1", "I am red-web-2 on node-2", "which answers: I am red-web-1\n"} {
			if !strings.Contains(string(out), answer) {
				t.Errorf("the %s quick start does not say %q:\n%s", run, answer, out)
			}
		}
		// The curl that it prints is one that works.
		_, rest, _ := strings.Cut(string(out), "  curl http://")
		address, ok := strings.CutSuffix(strings.SplitN(rest, "\n", 2)[0], ":8080/")
		if !ok {
			t.Fatalf("the %s quick start prints no curl:\n%s", run, out)
		}
		answersOutside(t, address, "red-web-1")
		if shown := strings.Contains(string(out), "shown once"); shown != (run == "first") {
			t.Errorf("the %s quick start shows passwords: %v\n%s", run, shown, out)
		}
	}
}
