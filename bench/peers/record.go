package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/columbamq/columba/bench/measure"
)

// record is all that a run knows. It is written after each turn, so that another run of the same plan goes on there.
type record struct {
	Plan     plan
	Machine  []string
	Versions map[string]string // by broker
	Clients  map[string]string // versions, by module
	Skipped  map[string]string // brokers that are not here, and why
	Lives    []life
}

// life is what one cluster did in its turn.
type life struct {
	turn
	Began  time.Time
	Load   string  // average before
	Others float64 // percent of the machine's CPU time that other processes took
	Disk   disk
	Rows   map[string]measured
	Failed map[string]string // rows, and why
}

// measured is one row of one life.
type measured struct {
	measure.Outcome
	Servers float64 // µs of CPU a message, of all servers
	Client  float64 // the same of the load generator
}

// find returns the life of a turn.
func (r *record) find(t turn) (life, bool) {
	for _, l := range r.Lives {
		if l.turn == t {
			return l, true
		}
	}
	return life{}, false
}

// resume takes over what an earlier run with the same plan, on the same machine, with the same programs, has measured.
// The record of any other run is put aside.
func (r *record) resume(path string) error {
	var before record
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &before); err != nil || !before.same(*r) {
		return os.Rename(path, path+".old")
	}
	r.Lives = before.Lives
	return nil
}

// same reports whether what both measure may be mixed.
func (r record) same(o record) bool {
	r.Lives, o.Lives = nil, nil
	return reflect.DeepEqual(r, o)
}

// save replaces the file as a whole.
func (r *record) save(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
