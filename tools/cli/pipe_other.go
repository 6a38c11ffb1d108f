//go:build !linux

package cli

// pipe is the writing end of a pipe. Elsewhere than on Linux it cannot be seen what its reader does: what was written
// counts as taken.
type pipe struct{}

func pipeOf(any) *pipe { return nil }

func (*pipe) unread() (int, bool) { return 0, false }

func (*pipe) broken() bool { return false }
