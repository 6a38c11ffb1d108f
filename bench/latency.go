package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/columbamq/columba/bench/measure"
)

// latency compares one message in flight with the disk's own time for as many bytes.
func (r *rig) latency() error {
	if memory, err := inMemory(r.dir); err != nil {
		return err
	} else if memory {
		r.report.skip("publish → ack p50 ÷ fdatasync p50, one in flight", fmt.Sprintf("%s is in memory and syncs nothing: name a directory on a disk with -dir", r.dir))
		return nil
	}
	s, err := r.server("latency")
	if err != nil {
		return err
	}
	defer s.remove()
	if err := r.createQueue(s); err != nil {
		return err
	}
	var ratios, acks, tails, syncs []float64
	for i := range 2*r.pairs - 1 { // short ones
		disk, err := syncTimes(filepath.Join(r.dir, fmt.Sprint("sync", i)), r.slice/3)
		if err != nil {
			return err
		}
		o, err := r.worker(measure.Job{Kind: "latency", Addr: s.addr, Queue: queuePath, Size: 1024, Warm: r.slice / 10, For: r.slice / 3})
		if err != nil {
			return err
		}
		sync := disk.Quantile(0.5)
		ratios, acks, tails, syncs = append(ratios, o.P50/sync), append(acks, o.P50), append(tails, o.P99), append(syncs, sync)
		r.report.say("repetition %d: fdatasync p50 %.3f ms, publish → ack p50 %.3f ms, p99 %.3f ms", i+1, sync, o.P50, o.P99)
	}
	r.report.info("1 KiB overwriting fdatasync, p50", median(syncs), "ms", "")
	r.report.info("publish → ack, one in flight, p50", median(acks), "ms", fmt.Sprintf("p99 %.2f ms", median(tails)))
	r.report.atMost("publish → ack p50 ÷ fdatasync p50, one in flight", median(ratios), 4, "×")
	return nil
}

// syncTimes overwrites 1 KiB of a file that has its blocks, again and again.
func syncTimes(path string, length time.Duration) (measure.Samples, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer os.Remove(path)
	defer f.Close()
	const size = 1 << 20
	if _, err := f.Write(make([]byte, size)); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	var took measure.Samples
	block := measure.Payload(1024)
	for began := time.Now(); time.Since(began) < length; {
		at := time.Now()
		if _, err := f.WriteAt(block, int64(len(took))*1024%size); err != nil {
			return nil, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return nil, err
		}
		took = append(took, time.Since(at))
	}
	return took, nil
}

// inMemory reports whether a directory is on tmpfs or ramfs.
func inMemory(dir string) (bool, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return false, err
	}
	const tmpfs, ramfs = 0x01021994, 0x858458f6
	return fs.Type == tmpfs || fs.Type == ramfs, nil
}
