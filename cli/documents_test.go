package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/resource"
)

func TestDocumentsAreCutApartWithTheirLines(t *testing.T) {
	tests := map[string]struct {
		text  string
		lines []int
	}{
		"one":                                    {"a: 1\n", []int{1}},
		"two":                                    {"a: 1\n---\nb: 2\n", []int{1, 2}},
		"begins with a separator":                {"---\na: 1\n", []int{1}},
		"ends with a separator":                  {"a: 1\n---\n", []int{1}},
		"only comments between":                  {"a: 1\n---\n# none\n---\nb: 2\n", []int{1, 4}},
		"a comment on the separator":             {"a: 1\n--- # next\nb: 2\n", []int{1, 2}},
		"content on the separator":               {"a: 1\n--- {b: 2}\n", []int{1, 2}},
		"no newline at the end":                  {"a: 1\n---\nb: 2", []int{1, 2}},
		"Windows' line ends and mark":            {"\ufeffa: 1\r\n---\r\nb: 2\r\n", []int{1, 2}},
		"dashes in text are not separators":      {"a: |\n  ---\n  x\nb: '---'\n", []int{1}},
		"four dashes are not one":                {"a: 1\n----\n", []int{1}},
		"JSON after JSON":                        {"{\"a\":1}\n\n{\"b\":2}\n{\"c\":3}", []int{1, 3, 4}},
		"a flow mapping is YAML although braced": {"{a: 1}\n", []int{1}},
		"others after a flow mapping":            {"\n{a: 1}\n---\n{b: 2}\n---\nc: 3\n", []int{2, 3, 5}},
		"JSON between separators":                {"{\"a\":1}\n---\n{\"b\":2}\n---\n{\"c\":3}\n", []int{1, 2, 4}},
		"YAML after JSON":                        {"{\"a\":1}\n{\"b\":2}\n---\nc: 3\n---\nd: 4\n", []int{1, 2, 3, 5}},
		"nothing":                                {"\n# nothing\n", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var lines []int
			for _, d := range splitDocuments([]byte(test.text)) {
				lines = append(lines, d.line)
			}
			require.Equal(t, test.lines, lines)
		})
	}
}

func TestNoDocumentIsPassedOverInSilence(t *testing.T) {
	for name, test := range map[string]struct{ text, where string }{
		"after the end of a document":      {"kind: A\n...\nkind: B\n", "f.yaml:3: another document begins here"},
		"braces after braces":              {"{kind: A}\n{kind: B}\n", "f.yaml:2: another document begins here"},
		"in the second of several":         {"kind: A\n---\n{kind: B}\n\n{kind: C}\n", "f.yaml:5 (document 2): another document begins here"},
		"what is none after what was JSON": {"{\"kind\":\"A\"}\nkind: B\n{}\n", "f.yaml:"},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := appendDocuments(nil, nil, "f.yaml", []byte(test.text))
			require.ErrorContains(t, errors.Join(errs...), test.where)
		})
	}
}

func TestAFieldIsFoundInItsDocument(t *testing.T) {
	text := []byte("kind: Container\nspec:\n  env:\n  - name: A\n    value: x\n  - name: B\n  subnet: front\n")
	for field, line := range map[string]int{
		"": 1, "kind": 1, "spec": 2, "spec.env": 3, "spec.env[0].value": 5, "spec.env[1].name": 6, "spec.subnet": 7,
		"spec.image": 2, "spec.env[7].name": 3, "nowhere": 1,
	} {
		require.Equal(t, line, lineOfField(text, field), field)
	}
	require.Equal(t, 1, lineOfField([]byte("kind: ["), "kind"), "no YAML")
}

func TestObjectsOfAListAreFoundInIt(t *testing.T) {
	text := "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n- apiVersion: v1\n  kind: ConfigMap\n  metadata:\n    labels: {}\n- 7\n"
	documents, errs := readDocuments(&resource.FilenameOptions{Filenames: []string{"-"}}, strings.NewReader(text))
	require.Len(t, documents, 1)
	require.Equal(t, "a", documents[0].object.GetName())
	require.Equal(t, "standard input:6", documents[0].at("metadata.name"))
	require.Len(t, errs, 1)
	require.ErrorContains(t, errs[0], "standard input:9: ConfigMap: metadata.name is missing")
	require.ErrorContains(t, errs[0], "standard input:11: not an object")
}

func TestANameThatYAMLTakesForSomethingElseIsAskedToBeQuoted(t *testing.T) {
	for name, says := range map[string]string{
		"y": "needs quotes", "1": "needs quotes", "[a]": "needs quotes", "~": "metadata.name is missing", `""`: "metadata.name is missing",
	} {
		text := "apiVersion: vpc.mnicloud.jp/v1alpha1\nkind: Vpc\nmetadata:\n  namespace: red\n  name: " + name + "\n"
		documents, errs := readDocuments(&resource.FilenameOptions{Filenames: []string{"-"}}, strings.NewReader(text))
		require.Empty(t, documents, name)
		require.Len(t, errs, 1, name)
		require.ErrorContains(t, errs[0], says, name)
		if says == "needs quotes" {
			require.ErrorContains(t, errs[0], "standard input:5: Vpc: metadata.name: ", name)
		}
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	empty := t.TempDir()
	write(t, empty, "more/a.yaml", webYAML)
	for name, says := range map[string]string{
		"/nonexistent.yaml":          "no such file",
		empty:                        "has no files named *.yaml, *.yml or *.json; -R also takes the folders in it",
		"https://example.net/a.yaml": "addresses are not read",
	} {
		documents, errs := readDocuments(&resource.FilenameOptions{Filenames: []string{name}}, nil)
		require.Empty(t, documents)
		require.Len(t, errs, 1)
		require.ErrorContains(t, errs[0], says)
	}
	_, errs := readDocuments(&resource.FilenameOptions{Filenames: []string{"-", "-"}}, strings.NewReader(webYAML))
	require.Len(t, errs, 1)
	require.ErrorContains(t, errs[0], "given twice")
}

func TestSchemaErrorsNameTheirFields(t *testing.T) {
	require.Equal(t, []schemaError{{field: "spec.foo", unknown: true}},
		schemaErrors("failed to create typed patch object (a/b; vpc.mnicloud.jp/v1alpha1, Kind=Vpc): .spec.foo: field not declared in schema"))
	require.Equal(t, []schemaError{{field: "spec.ports[0].prot", unknown: true}, {field: "spec.command", message: "expected list"}},
		schemaErrors("errors:\n  .spec.ports[0].prot: field not declared in schema\n  .spec.command: expected list, got &{top}"))
	require.Equal(t, []schemaError{{field: "spec.foo", unknown: true}}, schemaErrors(`strict decoding error: unknown field "spec.foo"`))
	require.Equal(t, []schemaError{{field: "spec.ports[0].port", message: "must be a number, without quotes"}},
		schemaErrors("failed to create typed patch object (a/b; ctr.mnicloud.jp/v1alpha1, Kind=Container): .spec.ports[0].port: expected numeric (int or float), got string"))
	require.Empty(t, schemaErrors("etcdserver: request timed out"))
}
