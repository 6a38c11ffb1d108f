package metadata

import "time"

// Stored is a live row with all that a store keeps of it.
type Stored struct {
	Table   Table
	Row     Row
	Expires time.Time // when the row ends; zero: never
}
