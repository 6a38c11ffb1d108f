// Package publish owns the appending of records to one queue through its input hosts: it batches, sends, tries again
// and reports each record's outcome.
package publish
