package wire

// Limits, checked before anything is allocated. Lengths are in bytes.
const (
	RecordHeaderLen  = 16 // len u32 | crc u32 | flags u32 | attrs_len u16 | reserved u16
	MaxPayload       = 16 << 20
	MaxAttributes    = 64<<10 - 1
	MaxPublished     = MaxAttributes - 128 // of the attributes of a published record: hosts add where it was, its attempts and why they failed
	MaxRecord        = RecordHeaderLen + MaxAttributes + MaxPayload
	MaxKey           = 128
	MaxReason        = 1024
	MaxReasonCode    = 64
	MaxConsumerName  = 128
	MaxTraceParent   = 128
	MaxToken         = 1024
	MaxBatchRecords  = 65535
	MaxSettledRuns   = 65535   // in one Settled
	MaxBatchBytes    = 1 << 20 // of several records; one larger record travels alone
	InternalHeadroom = 64 << 10
	// MaxKnown bounds the window of an open-read of a timer extent, whose records are at most 128 Ki: that many bits are
	// 16 KiB.
	MaxKnown = 17 << 10
)

// BatchTarget is the size, in bytes of records, to which publishers and writers fill a batch. The storage engine keeps
// its buffers for values of up to 256 KiB, and allocates others for each larger value; and a batch of this size stays
// in a processor's cache while it is copied and checked.
const BatchTarget = 240 << 10

// MaxMillis bounds the times of a record in unix ms, and its delay in ms: the end of the year 9999. Sums of two such
// values, and their conversion to µs, stay within an int64.
const MaxMillis int64 = 253402300799999
