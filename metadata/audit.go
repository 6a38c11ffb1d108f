package metadata

import "time"

// AuditTTL is how long audit rows are kept.
const AuditTTL = 30 * 24 * time.Hour

// AuditRecord says who changed what, when, and how it ended.
type AuditRecord struct {
	Who    string    `json:"who"`
	What   string    `json:"what"`   // the call
	Object string    `json:"object"` // a path or an id
	When   time.Time `json:"when"`
	Result string    `json:"result"` // "ok" or the error's code
}
