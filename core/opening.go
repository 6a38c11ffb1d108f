package core

// BreakerOpening is one time that the breaker of a group opened on an output host.
type BreakerOpening struct {
	Group  GroupID
	Run    RunID  // of the host
	Number uint64 // another one each time
}

// MaxOpenings bounds of how many open breakers, the newest, an output host tells and is told.
const MaxOpenings = 1000
