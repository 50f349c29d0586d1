// Package reports holds docs/design/reports.md to the truth: each test that it names exists and carries the address of its report.
package reports
