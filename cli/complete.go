package cli

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/completion"

	"github.com/mnicloud/mnicloud/cli/account"
)

// completeKindsAndNames completes KIND NAME... and KIND/NAME....
func (c *connection) completeKindsAndNames(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	kind, name, slash := strings.Cut(word, "/")
	switch {
	case slash:
		return without(prefixed(kind+"/", c.names(kind, name)), args), cobra.ShellCompDirectiveNoFileComp
	case len(args) > 0 && !strings.Contains(args[0], "/"):
		return without(c.names(args[0], word), args[1:]), cobra.ShellCompDirectiveNoFileComp
	case len(args) > 0:
		return suffixed(c.kinds(word), "/"), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return c.kinds(word), cobra.ShellCompDirectiveNoFileComp
}

// completeContainer completes the name of one Container.
func (c *connection) completeContainer(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return c.names(containerResource.String(), word), cobra.ShellCompDirectiveNoFileComp
}

// completeKind completes one kind.
func (c *connection) completeKind(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.kinds(word), cobra.ShellCompDirectiveNoFileComp
}

func (c *connection) kinds(prefix string) []string {
	d, err := c.discovery()
	if err != nil {
		return nil
	}
	words, _ := tenantKinds(d)
	return slices.DeleteFunc(words, func(w string) bool { return !strings.HasPrefix(w, prefix) })
}

func (c *connection) names(kind, prefix string) []string {
	return completion.CompGetResource(c.factory(), kind, prefix)
}

// completeFlags completes the values of the root's flags.
func (c *connection) completeFlags(root *cobra.Command) {
	complete := func(flag string, values func(prefix string) []string) {
		err := root.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
			return values(word), cobra.ShellCompDirectiveNoFileComp
		})
		if err != nil {
			panic(err)
		}
	}
	complete("namespace", func(prefix string) []string {
		if way, err := c.choose(); err == nil && way.profile != "" {
			return c.tenantNames(prefix)
		}
		return c.names("namespaces", prefix)
	})
	complete("profile", profiles)
	complete("instance", c.instances)
	complete("context", func(prefix string) []string {
		config, err := c.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil
		}
		var names []string
		for name := range config.Contexts {
			if strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
		return names
	})
}

// instances are the names of the clouds on this machine.
func (c *connection) instances(prefix string) []string {
	files, _ := filepath.Glob(filepath.Join(c.machine.state, "*", ownerKubeconfig))
	var names []string
	for _, file := range files {
		if name := filepath.Base(filepath.Dir(file)); strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names
}

// profiles are the names of the logins.
func profiles(prefix string) []string {
	store, err := account.UserStore()
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(store.Profiles(), func(name string) bool { return !strings.HasPrefix(name, prefix) })
}

func without(words, used []string) []string {
	return slices.DeleteFunc(words, func(w string) bool { return slices.Contains(used, w) })
}

func prefixed(prefix string, words []string) []string {
	for i := range words {
		words[i] = prefix + words[i]
	}
	return words
}

func suffixed(words []string, suffix string) []string {
	for i := range words {
		words[i] += suffix
	}
	return words
}

// completeWords completes a flag whose values are few.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}
