package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/yaml"
)

// standardInput is what messages call it.
const standardInput = "standard input"

// document is one object of a file, with the place it stands at.
type document struct {
	// source is the file's name as given, or standardInput.
	source string
	// number counts the documents of the source from 1; several tells whether it has more than one.
	number  int
	several bool
	// line of the source at which the text begins, from 1.
	line int
	// text is the document's YAML or JSON. Objects in a List share the List's text, within which they stand at path.
	text []byte
	path string

	object *unstructured.Unstructured
}

// at says where a field of the document is: "web.yaml:7 (document 2)". An empty field means the document.
func (d *document) at(field string) string {
	return d.atLine(lineOfField(d.text, joinPath(d.path, field)))
}

// atLine says where a line of the document's text is.
func (d *document) atLine(line int) string {
	place := fmt.Sprintf("%s:%d", d.source, d.line+line-1)
	if d.several {
		place += fmt.Sprintf(" (document %d)", d.number)
	}
	return place
}

// documentError says what is wrong with a field of a document, and where it is.
func (d *document) errorf(field, format string, args ...any) error {
	return fmt.Errorf("%s: %w", d.at(field), fmt.Errorf(format, args...))
}

// readDocuments reads the documents of files and folders, in order, a folder's files sorted by name. Documents that cannot
// be understood are left out, each with an error.
func readDocuments(o *resource.FilenameOptions, stdin io.Reader) (documents []*document, errs []error) {
	stdinRead := false
	for _, name := range o.Filenames {
		switch {
		case name == "-" && stdinRead:
			errs = append(errs, errors.New("-f - is given twice; standard input can be read once"))
		case name == "-":
			stdinRead = true
			text, err := io.ReadAll(stdin)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", standardInput, err))
				continue
			}
			documents, errs = appendDocuments(documents, errs, standardInput, text)
		case strings.HasPrefix(name, "http://"), strings.HasPrefix(name, "https://"):
			errs = append(errs, fmt.Errorf("%s: addresses are not read: download the file first, or `curl -f %s | mni apply -f -`", name, name))
		default:
			files, err := documentFiles(name, o.Recursive)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					errs = append(errs, err)
					continue
				}
				documents, errs = appendDocuments(documents, errs, file, text)
			}
		}
	}
	if len(documents) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("no documents in %s", strings.ReplaceAll(strings.Join(o.Filenames, ", "), "-", standardInput)))
	}
	return documents, errs
}

// documentFiles are the files that a file's or folder's name stands for.
func documentFiles(name string, recursive bool) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	var files []string
	err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != name && !recursive:
			return fs.SkipDir
		case !entry.IsDir() && slices.Contains(resource.FileExtensions, filepath.Ext(path)):
			files = append(files, path)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("folder %s has no files named *.yaml, *.yml or *.json", name)
		if !recursive {
			err = fmt.Errorf("%w; -R also takes the folders in it", err)
		}
	}
	return files, err
}

// appendDocuments adds a source's documents.
func appendDocuments(documents []*document, errs []error, source string, text []byte) ([]*document, []error) {
	parts := splitDocuments(text)
	for i, part := range parts {
		part.source, part.number, part.several = source, i+1, len(parts) > 1
		objects, err := part.parse()
		if err != nil {
			errs = append(errs, err)
		}
		documents = append(documents, objects...)
	}
	return documents, errs
}

// splitDocuments cuts a stream of YAML or JSON documents apart and leaves out empty ones.
func splitDocuments(text []byte) []*document {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] == '{' {
		return splitJSON(text)
	}
	return splitYAML(text, 1)
}

// splitYAML cuts YAML documents apart that begin at a line.
func splitYAML(text []byte, first int) []*document {
	var parts []*document
	current := &document{line: first}
	finish := func() {
		if !isBlank(current.text) {
			parts = append(parts, current)
		}
	}
	for i, line := range bytes.SplitAfter(text, []byte("\n")) {
		rest, separator := bytes.CutPrefix(line, []byte("---"))
		if !separator || (len(rest) > 0 && !bytes.ContainsAny(rest[:1], " \t\n")) {
			current.text = append(current.text, line...)
			continue
		}
		finish()
		current = &document{line: first + i, text: append([]byte("   "), rest...)}
	}
	finish()
	return parts
}

// isBlank tells whether there is nothing but comments and space.
func isBlank(text []byte) bool {
	for _, line := range bytes.Split(text, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// splitJSON cuts JSON documents that follow each other apart. From where it is not JSON on, it is taken for YAML: a mapping in braces, or a
// line that separates.
func splitJSON(text []byte) []*document {
	var parts []*document
	decoder := json.NewDecoder(bytes.NewReader(text))
	for start := 0; ; {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return parts
		} else if err != nil {
			rest := bytes.TrimLeft(text[start:], " \t\n")
			return append(parts, splitYAML(rest, 1+bytes.Count(text[:len(text)-len(rest)], []byte("\n")))...)
		}
		end := int(decoder.InputOffset())
		lead := len(text[start:end]) - len(bytes.TrimLeft(text[start:end], " \t\n"))
		parts = append(parts, &document{line: 1 + bytes.Count(text[:start+lead], []byte("\n")), text: text[start+lead : end]})
		start = end
	}
}

// nextDocument is the line at which a second document begins, or cannot; 0 when there is none. Parsers ignore what follows the first.
func nextDocument(text []byte) int {
	var first, next yamlv3.Node
	decoder := yamlv3.NewDecoder(bytes.NewReader(text))
	if decoder.Decode(&first) != nil {
		return 0
	}
	switch err := decoder.Decode(&next); {
	case errors.Is(err, io.EOF):
		return 0
	case err == nil && len(next.Content) > 0:
		return next.Content[0].Line
	case err == nil:
		return next.Line
	default:
		line := 0
		if m := yamlError.FindStringSubmatch(err.Error()); m != nil {
			line, _ = strconv.Atoi(m[1])
		}
		return line + 1 // the parser counts them from 0
	}
}

var yamlError = regexp.MustCompile(`(?s)line (\d+): (.*)`)

// parse decodes the document; a List becomes its items.
func (d *document) parse() ([]*document, error) {
	raw, err := yaml.YAMLToJSONStrict(d.text)
	if err != nil {
		line, message := 1, err.Error()
		if m := yamlError.FindStringSubmatch(message); m != nil {
			line, _ = strconv.Atoi(m[1])
			message = m[2]
		}
		return nil, fmt.Errorf("%s: invalid YAML: %s", d.atLine(line), message)
	}
	if line := nextDocument(d.text); line > 0 {
		return nil, fmt.Errorf("%s: another document begins here: put a line with --- before it", d.atLine(line))
	}
	var content map[string]any
	if err := utiljson.Unmarshal(raw, &content); err != nil {
		return nil, d.errorf("", "not an object: apiVersion, kind, metadata and spec are expected")
	}
	d.object = &unstructured.Unstructured{Object: content}
	items, isList := content["items"].([]any)
	if !isList || !strings.HasSuffix(d.object.GetKind(), "List") {
		if err := d.complete(); err != nil {
			return nil, err
		}
		return []*document{d}, nil
	}
	var documents []*document
	var errs []error
	for i, item := range items {
		one := *d
		one.path = fmt.Sprintf("items[%d]", i)
		content, ok := item.(map[string]any)
		if !ok {
			errs = append(errs, one.errorf("", "not an object: apiVersion, kind, metadata and spec are expected"))
			continue
		}
		one.object = &unstructured.Unstructured{Object: content}
		if err := one.complete(); err != nil {
			errs = append(errs, err)
			continue
		}
		documents = append(documents, &one)
	}
	return documents, errors.Join(errs...)
}

// complete checks that the document names its object.
func (d *document) complete() error {
	for _, field := range []string{"apiVersion", "kind"} {
		if value, _ := d.object.Object[field].(string); value == "" {
			return d.errorf(field, "%s is missing: say for example\napiVersion: vpc.mnicloud.jp/v1alpha1\nkind: Vpc", field)
		}
	}
	name, written, _ := unstructured.NestedFieldNoCopy(d.object.Object, "metadata", "name")
	if _, isText := name.(string); written && name != nil && !isText {
		return d.errorf("metadata.name", "%s: metadata.name: expected string: %s", d.object.GetKind(), needsQuotes)
	}
	if d.object.GetName() == "" {
		return d.errorf("metadata", "%s: metadata.name is missing", d.object.GetKind())
	}
	if wrong := content.IsPathSegmentName(d.object.GetName()); len(wrong) > 0 {
		return d.errorf("metadata.name", "%s: metadata.name: %q %s", d.object.GetKind(), d.object.GetName(), strings.Join(wrong, ", "))
	}
	return nil
}
