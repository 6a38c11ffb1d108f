// Package client is the Go library of Columba: it publishes, consumes, works and administers over one [Client].
package client
