// Command apireference writes the API reference, docs/reference/GROUP.md, from the CRDs.
//
//	apireference --out docs/reference network/config/crd services/vpc/config/crd
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	out := flag.String("out", "docs/reference", "folder to write to")
	flag.Parse()
	if err := run(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "apireference:", err)
		os.Exit(1)
	}
}

// run reads the CRDs of the folders and writes one file per group and an index.
func run(out string, dirs []string) error {
	groups := map[string][]*apiextensionsv1.CustomResourceDefinition{}
	for _, dir := range dirs {
		paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			return err
		}
		if len(paths) == 0 {
			return fmt.Errorf("no CRD in %s", dir)
		}
		for _, path := range paths {
			crd, err := read(path)
			if err != nil {
				return err
			}
			groups[crd.Spec.Group] = append(groups[crd.Spec.Group], crd)
		}
	}
	var index bytes.Buffer
	index.WriteString(marker + "# API reference\n\n| group | kinds |\n|---|---|\n")
	for _, group := range sortedKeys(groups) {
		crds := groups[group]
		slices.SortFunc(crds, func(a, b *apiextensionsv1.CustomResourceDefinition) int {
			return bytes.Compare([]byte(a.Spec.Names.Kind), []byte(b.Spec.Names.Kind))
		})
		fmt.Fprintf(&index, "| [%s](%s.md) |", group, group)
		for i, crd := range crds {
			if i > 0 {
				index.WriteString(",")
			}
			fmt.Fprintf(&index, " [%s](%s.md#%s)", crd.Spec.Names.Kind, group, anchor(crd.Spec.Names.Kind))
		}
		index.WriteString(" |\n")
		if err := write(filepath.Join(out, group+".md"), page(group, crds)); err != nil {
			return err
		}
	}
	return write(filepath.Join(out, "README.md"), index.Bytes())
}

func read(path string) (*apiextensionsv1.CustomResourceDefinition, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &crd, nil
}

func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}
