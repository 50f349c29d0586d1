// Package page is what the gateway shows to browsers: a page to read the API's description with (OpenAPI v3), and a plain one where a
// console will be. They load nothing from elsewhere and run no script but their own; what a user may see of the API the page's script
// asks of the API itself, with that user's token, which it keeps nowhere.
package page

import (
	"embed"
	"html/template"
	"io"
)

// Policy is the content security policy of the pages: their own script and style, and nothing else.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'"

// Files are index.html, with page.js and page.css which it loads, and console.html, a template.
//
//go:embed index.html page.js page.css console.html
var Files embed.FS

var console = template.Must(template.ParseFS(Files, "console.html"))

// Console writes the plain page where the console of a service will be.
func Console(w io.Writer, service string) error { return console.Execute(w, service) }
