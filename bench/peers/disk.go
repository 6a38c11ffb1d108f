package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/columbamq/columba/bench/measure"
)

// disk is what the disk allows: of a file that grows, each append with an fdatasync.
type disk struct {
	One   float64 // ms; p50 of 1 KiB
	Three float64 // MB/s; 64 KiB, of three files at once
}

// diskTime is how long each of both is measured.
const diskTime = time.Second

func measureDisk(dir string) (d disk, err error) {
	small, _, err := appends(filepath.Join(dir, "append"), 1024, diskTime)
	if err != nil {
		return d, err
	}
	d.One = small.Quantile(0.5)
	var wg sync.WaitGroup
	errs, rates := make([]error, replicas), make([]float64, replicas)
	for i := range errs {
		wg.Go(func() { _, rates[i], errs[i] = appends(filepath.Join(dir, fmt.Sprint("append", i)), 64<<10, diskTime) })
	}
	wg.Wait()
	for _, r := range rates {
		d.Three += r
	}
	return d, errors.Join(errs...)
}

// appends returns how long each took, and the rate in MB/s.
func appends(path string, size int, lasts time.Duration) (took measure.Samples, rate float64, err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, 0, err
	}
	defer os.Remove(path)
	defer f.Close()
	block, began := measure.Payload(size), time.Now()
	for time.Since(began) < lasts {
		at := time.Now()
		if _, err := f.Write(block); err != nil {
			return nil, 0, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return nil, 0, err
		}
		took = append(took, time.Since(at))
	}
	return took, float64(len(took)*size) / 1e6 / time.Since(began).Seconds(), nil
}
