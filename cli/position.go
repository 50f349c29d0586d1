package cli

import (
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// lineOfField is the line, from 1, of a field in YAML or JSON text, or of the nearest one above it that there is. A path is
// as in API errors: "spec.env[0].name".
func lineOfField(text []byte, path string) int {
	var root yamlv3.Node
	if yamlv3.Unmarshal(text, &root) != nil || len(root.Content) == 0 {
		return 1
	}
	node, line := root.Content[0], root.Content[0].Line
	for _, step := range steps(path) {
		child, at := childOf(node, step)
		if child == nil {
			break
		}
		node, line = child, at
	}
	return line
}

// childOf is the value a mapping or sequence has at a step, and the line at which it begins.
func childOf(node *yamlv3.Node, step string) (*yamlv3.Node, int) {
	switch node.Kind {
	case yamlv3.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				return node.Content[i+1], node.Content[i].Line
			}
		}
	case yamlv3.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i].Line
		}
	}
	return nil, 0
}

// steps cuts "spec.env[0].name" into spec, env, 0, name.
func steps(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
}

func joinPath(prefix, path string) string {
	if prefix == "" || path == "" {
		return prefix + path
	}
	return prefix + "." + path
}
