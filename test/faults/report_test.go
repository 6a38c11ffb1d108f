package faults

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/columbamq/columba/tools/verify"
)

// table is what the tests of a run found, a row each, printed when all are done and appended to the file that
// COLUMBA_FAULTS_REPORT names.
var table struct {
	sync.Mutex
	rows []string
}

const tableHead = "| what was done | verdict | faults | acknowledged | unknown | lost | stuck | duplicates | figures |\n|---|---|---|---|---|---|---|---|---|\n"

// row adds a test's row, once its history is checked.
func (r *run) row(what, figures string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	verdict := "ok"
	if r.t.Failed() {
		verdict = "FAILED"
	}
	received, duplicates, worst := 0, 0, 0.0
	for _, c := range r.report.Counts {
		received += c.Received
		duplicates += c.Duplicates
		worst = max(worst, share(c))
	}
	table.Lock()
	defer table.Unlock()
	table.rows = append(table.rows, fmt.Sprintf("| %s | %s | %d | %d | %d | %d | %d | %d (%.2f %% at most) | %s |", what, verdict, len(r.history.Crashes),
		r.outcomes[verify.Acked], r.outcomes[verify.Unknown], len(r.report.Of(verify.Lost)), len(r.report.Of(verify.Stuck)), duplicates, 100*worst, figures))
}

// share is a group's duplicates to its messages.
func share(c verify.Count) float64 { return float64(c.Duplicates) / float64(max(c.Received, 1)) }

// printTable ends a run.
func printTable() error {
	table.Lock()
	defer table.Unlock()
	if len(table.rows) == 0 || os.Getenv(longEnv) == "" {
		return nil
	}
	text := "\n" + tableHead + strings.Join(table.rows, "\n") + "\n"
	fmt.Print(text)
	path := os.Getenv("COLUMBA_FAULTS_REPORT")
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err = f.WriteString(text); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// explained counts the duplicates of a report by what was down when they came about: a line for people.
func (r *run) explained() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := []string{r.report.String()}
	for _, c := range r.history.Crashes {
		lines = append(lines, fmt.Sprintf("%s was down from %s to %s", c.What, c.From.Format("15:04:05.000"), c.To.Format("15:04:05.000")))
	}
	return strings.Join(lines, "\n")
}
