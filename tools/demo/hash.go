package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/columbamq/columba/client"
)

// Result is what the hash group finds out about a file.
type Result struct {
	Path   string `json:"path"`
	Size   int    `json:"size"`
	Lines  int    `json:"lines"`
	SHA256 string `json:"sha256"`
	// Task is when the task was enqueued, unix µs: the time from there to the result's arrival is the job's latency.
	Task int64 `json:"task"`
}

// hashFile reads one file of the tree.
func hashFile(dir, path string) (Result, error) {
	b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
	if err != nil {
		return Result{}, err
	}
	sum := sha256.Sum256(b)
	return Result{Path: path, Size: len(b), Lines: bytes.Count(b, []byte{'\n'}), SHA256: hex.EncodeToString(sum[:])}, nil
}

// hash works for the hash group.
func (r *run) hash(ctx context.Context) error {
	return work(ctx, r.c, r.o.Dir, hashWorkers)
}

// Worker is the process that works for the hash group until it is killed.
func Worker(ctx context.Context, addr, dir string) error {
	c, err := client.Dial(ctx, addr, client.WithName(fmt.Sprintf("demo-worker-%d", os.Getpid())))
	if err != nil {
		return err
	}
	defer c.Close()
	return work(ctx, c, dir, 1)
}

// work publishes a result for each task and acks the task once the result is durable.
func work(ctx context.Context, c *client.Client, dir string, concurrency int) error {
	pub, err := c.Publisher(ctx, resultsQueue)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = pub.Close(ctx) // a task whose result did not make it was not acked
	}()
	return c.Work(ctx, filesQueue, hashGroup, func(ctx context.Context, d *client.Delivery) error {
		res, err := hashFile(dir, string(d.Body))
		if err != nil {
			return err
		}
		res.Task = d.Enqueued.UnixMicro()
		body, err := json.Marshal(res)
		if err != nil {
			return err
		}
		_, err = pub.Publish(ctx, client.Message{Body: body, Key: res.Path})
		return err
	}, client.Concurrency(concurrency), client.Prefetch(2*concurrency))
}
