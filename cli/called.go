package cli

import (
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
)

// CallAs makes the root command call itself, in messages and usages, as the user called the program: by its path
// (bin/mni) unless its plain name would run the same program.
func CallAs(root *cobra.Command, path string) {
	if strings.Contains(path, "/") && !found(root.Name(), path) {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: path}
	}
}

// found tells whether the shell would find the program at the path by its name.
func found(name, path string) bool {
	byName, err := exec.LookPath(name)
	if err != nil {
		return false
	}
	a, err := os.Stat(byName)
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}
