package cli

import (
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

func queueFields(q *pb.Queue) []field {
	s := q.GetSpec()
	return []field{
		{name: "queue", value: s.GetPath()},
		{name: "id", value: q.GetId(), detail: true},
		{name: "consistency", value: s.GetConsistency()},
		{name: "durability", value: s.GetDurability()},
		{name: "replicas", value: s.GetReplicas()},
		{name: "min_replicas", value: s.GetMinReplicas(), detail: true},
		{name: "consumed_retention", value: duration(s.GetConsumedRetention()), detail: true},
		{name: "unconsumed_retention", value: duration(s.GetUnconsumedRetention()), detail: true},
		{name: "max_message", value: s.GetMaxMessage()},
		{name: "max_backlog", value: s.GetMaxBacklog(), detail: true},
		{name: "status", value: s.GetStatus()},
		{name: "created", value: instant(q.GetCreated())},
	}
}

func groupFields(g *pb.Group) []field {
	s := g.GetSpec()
	var backoff any
	if b := s.GetBackoff(); b != nil {
		backoff = backoffView{duration(b.Min), b.Factor, duration(b.Max), b.Jitter}
	}
	return []field{
		{name: "queue", value: s.GetQueue()},
		{name: "group", value: s.GetName()},
		{name: "id", value: g.GetId(), detail: true},
		{name: "dlq", value: g.GetDlqPath(), detail: true},
		{name: "start", value: s.GetStart()},
		{name: "last_seek", value: orNil(g.GetLastSeek())},
		{name: "last_seek_at", value: instant(g.GetLastSeekAt()), detail: true},
		{name: "pending_seek", value: orNil(g.GetPendingSeek()), detail: true},
		{name: "pending_seek_since", value: instant(g.GetPendingSeekSince()), detail: true},
		{name: "note", value: orNil(g.GetNote()), detail: true},
		{name: "lock_timeout", value: duration(s.GetLockTimeout())},
		{name: "max_deliveries", value: maxDeliveries(s.GetMaxDeliveries())},
		{name: "delay", value: duration(s.GetDelay()), detail: true},
		{name: "skip_older", value: duration(s.GetSkipOlder()), detail: true},
		{name: "backoff", value: backoff, detail: true},
		{name: "exhausted", value: s.GetExhausted()},
		{name: "expired", value: s.GetExpired(), detail: true},
		{name: "delivery", value: s.GetDelivery()},
		{name: "breaker", value: breakerSetting(s.GetBreaker()), detail: true},
		{name: "no_nack_throttle", value: s.GetNoNackThrottle(), detail: true},
		{name: "max_delayed_retries", value: s.GetMaxDelayedRetries(), detail: true},
		{name: "status", value: s.GetStatus()},
		{name: "created", value: instant(g.GetCreated())},
	}
}

// orNil is a text, or nothing when it is empty.
func orNil(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// maxDeliveries is a number, of which JSON and YAML have -1 for unlimited, and tables a word.
type maxDeliveries int32

func (m maxDeliveries) String() string {
	if m == core.UnlimitedDeliveries {
		return "unlimited"
	}
	return strconv.Itoa(int(m))
}

// breakerSetting is a percentage, of which JSON and YAML have -1 for off, and tables a word.
type breakerSetting int32

func (b breakerSetting) String() string {
	if b == core.BreakerOff {
		return "off"
	}
	return strconv.Itoa(int(b)) + "%"
}

// backoffView is a group's back-off in JSON; in tables it has the form of the flag.
type backoffView struct {
	Min    string  `json:"min"`
	Factor float64 `json:"factor"`
	Max    string  `json:"max"`
	Jitter float64 `json:"jitter"`
}

func (b backoffView) String() string {
	return fmt.Sprintf("%s,%g,%s,%g", b.Min, b.Factor, b.Max, b.Jitter)
}

func extentFields(e *pb.ExtentInfo) []field {
	return []field{
		{name: "extent", value: e.GetExtent()},
		{name: "queue", value: e.GetQueue()},
		{name: "kind", value: e.GetKind()},
		{name: "state", value: e.GetState()},
		{name: "input", value: e.GetInput()},
		{name: "replicas", value: e.GetReplicas()},
		{name: "copies", value: e.GetCopies()},
		{name: "last_seq", value: e.GetLastSeq()},
		{name: "bytes", value: e.GetBytes()},
		{name: "created", value: instant(e.GetCreated())},
		{name: "read_scope", value: e.GetReadScope()},
		{name: "wanted", value: e.GetWanted()},
		{name: "chain", value: e.GetChain()},
		{name: "horizon", value: e.GetHorizon()},
		{name: "due", value: instant(e.GetDue())},
		{name: "lost_from", value: e.GetLostFrom()},
	}
}

// listedExtent is extentFields for a table. It counts the copies, and those on stores that are not there; with nil
// stores the latter are not known.
func listedExtent(e *pb.ExtentInfo, stores []string) []field {
	copies := ""
	if n := len(e.GetCopies()); n > 0 {
		copies = fmt.Sprintf("%d of %d", n, max(n, int(e.GetWanted())))
		away := slices.DeleteFunc(slices.Clone(e.GetCopies()), func(h string) bool { return stores == nil || slices.Contains(stores, h) })
		if len(away) > 0 {
			copies += fmt.Sprintf(", %d away", len(away))
		}
		if e.GetLostFrom() > 0 {
			copies += fmt.Sprintf(", lost from %d", e.GetLostFrom())
		}
	}
	chain := ""
	if e.GetChain() > 0 {
		chain = strconv.FormatUint(e.GetChain(), 10)
	}
	kind := e.GetKind()
	if e.GetHorizon() != "" {
		kind += " " + e.GetHorizon()
	}
	return []field{
		{name: "extent", value: e.GetExtent()},
		{name: "kind", value: kind},
		{name: "state", value: e.GetState()},
		{name: "input", value: e.GetInput()},
		{name: "replicas", value: e.GetReplicas()},
		{name: "copies", value: copies},
		{name: "last_seq", value: e.GetLastSeq()},
		{name: "bytes", value: e.GetBytes()},
		{name: "created", value: instant(e.GetCreated())},
		{name: "chain", value: chain},
	}
}

func hostFields(h *pb.HostInfo) []field {
	return []field{
		{name: "host", value: h.GetHost()},
		{name: "roles", value: h.GetRoles()},
		{name: "addr", value: h.GetAddr()},
		{name: "zone", value: h.GetZone()},
		{name: "state", value: h.GetState()},
		{name: "since", value: instant(h.GetSince())},
		{name: "majority", value: h.GetMajority(), detail: true},
		{name: "majority_since", value: instant(h.GetMajoritySince()), detail: true},
		{name: "run", value: h.GetRun()},
	}
}

func depthFields(d *pb.Depth) []field {
	return []field{
		{name: "queue", value: d.GetQueue()},
		{name: "group", value: d.GetGroup()},
		{name: "ready", value: counted(d, d.GetReady())},
		{name: "in_flight", value: counted(d, d.GetInFlight())},
		{name: "delayed", value: counted(d, d.GetDelayed())},
		{name: "delayed_publish", value: counted(d, d.GetDelayedPublish()), detail: true},
		{name: "delayed_retry", value: counted(d, d.GetDelayedRetry()), detail: true},
		{name: "delayed_group", value: counted(d, d.GetDelayedGroup()), detail: true},
		{name: "retries", value: counted(d, d.GetRetries()), detail: true},
		{name: "blocked", value: counted(d, d.GetBlocked())},
		{name: "dead", value: counted(d, d.GetDead())},
		{name: "oldest_ready_ms", value: counted(d, d.GetOldestReadyMs())},
		{name: "ack_rate", value: tenths(d.GetAckRate())},
		{name: "publish_rate", value: tenths(d.GetPublishRate())},
		{name: "drain_ms", value: drain(d)},
		{name: "unknown_extents", value: d.GetUnknownExtents(), detail: true},
		{name: "breaker_open_ms", value: d.GetBreakerOpenMs()},
	}
}

// listedDepth is depthFields of a row of all groups.
func listedDepth(d *pb.Depth) []field {
	return append(depthFields(d), field{name: "bytes", value: d.GetBytes()})
}

// listedQueue is queueFields with the queue's depth, for lists: in tables the counts take the place of settings.
func listedQueue(q *pb.Queue) []field {
	fields := queueFields(q)
	for i := range fields {
		switch fields[i].name {
		case "durability", "max_message", "created":
			fields[i].detail = true
		}
	}
	known := func(v any) any {
		if q.Depth == nil {
			return nil
		}
		return v
	}
	d := q.GetDepth()
	return append(fields,
		field{name: "ready", value: known(counted(d, d.GetReady()))},
		field{name: "in_flight", value: known(counted(d, d.GetInFlight()))},
		field{name: "delayed", value: known(counted(d, d.GetDelayed()))},
		field{name: "delayed_publish", value: known(counted(d, d.GetDelayedPublish())), detail: true},
		field{name: "delayed_retry", value: known(counted(d, d.GetDelayedRetry())), detail: true},
		field{name: "delayed_group", value: known(counted(d, d.GetDelayedGroup())), detail: true},
		field{name: "blocked", value: known(counted(d, d.GetBlocked())), detail: true},
		field{name: "dead", value: known(counted(d, d.GetDead()))},
		field{name: "oldest_ready_ms", value: known(counted(d, d.GetOldestReadyMs()))},
		field{name: "publish_rate", value: known(tenths(d.GetPublishRate()))},
		field{name: "backlog_bytes", value: known(d.GetBytes()), detail: true},
	)
}

func tenths(perSecond float64) float64 { return math.Round(perSecond*10) / 10 }

func deadLetterFields(d *pb.DeadLetter) []field {
	payload := payloadField(d.GetMessage().GetPayload())
	payload.detail = true
	return []field{
		{name: "id", value: d.GetId()},
		{name: "receipt", value: d.GetReceipt()},
		payload,
		{name: "attempts", value: d.GetAttempts()},
		{name: "reason", value: d.GetReason()},
		{name: "error", value: d.GetError()},
		{name: "first_enqueued", value: instant(d.GetFirstEnqueued())},
		{name: "dead_since", value: instant(d.GetDeadSince())},
		{name: "last_consumer", value: d.GetLastConsumer()},
		{name: "history", value: livesOf(d), detail: true},
		{name: "origin", value: d.GetOrigin(), detail: true},
		{name: "key", value: d.GetMessage().GetKey(), detail: true},
		{name: "headers", value: headers(d.GetMessage().GetHeaders()), detail: true},
	}
}

// lives are how a dead letter died before it was merged, the oldest first.
type lives []life

type life struct {
	Attempts     int32  `json:"attempts"`
	Reason       string `json:"reason"`
	Error        string `json:"error"`
	DeadSince    any    `json:"dead_since"`
	LastConsumer string `json:"last_consumer"`
}

func livesOf(d *pb.DeadLetter) lives {
	out := make(lives, 0, len(d.GetHistory()))
	for _, l := range d.GetHistory() {
		out = append(out, life{l.GetAttempts(), l.GetReason(), l.GetError(), instant(l.GetDeadSince()), l.GetLastConsumer()})
	}
	return out
}

// String is for tables.
func (l lives) String() string {
	texts := make([]string, len(l))
	for i, x := range l {
		texts[i] = fmt.Sprintf("%v: %s after %s", x.DeadSince, x.Reason, plural(int64(x.Attempts), "attempt"))
		if x.Error != "" {
			texts[i] += ", " + x.Error
		}
	}
	return strings.Join(texts, "; ")
}

// listedPayload is how much of a payload a list's table shows, in characters.
const listedPayload = 40

// listedDeadLetter is deadLetterFields for a table: the beginning of the payload comes last.
func listedDeadLetter(d *pb.DeadLetter) []field {
	payload := payloadField(d.GetMessage().GetPayload()).value.(string)
	var fields []field
	for _, f := range deadLetterFields(d) {
		if !f.detail {
			fields = append(fields, f)
		}
	}
	return append(fields, field{name: "payload", value: clipped(payload, listedPayload)})
}

// clipped is text as it can be shown on one line, at most most characters of it.
func clipped(text string, most int) string {
	shown := []rune(printable(text[:min(len(text), most*utf8.UTFMax)]))
	if len(shown) <= most && len(text) <= most*utf8.UTFMax {
		return string(shown)
	}
	return string(shown[:min(len(shown), most-1)]) + "…"
}

func storedFields(m *pb.StoredMessage) []field {
	return []field{
		{name: "receipt", value: m.GetReceipt()},
		{name: "id", value: m.GetMessage().GetId()},
		{name: "enqueued", value: instant(m.GetEnqueued())},
		{name: "key", value: m.GetMessage().GetKey()},
		{name: "headers", value: headers(m.GetMessage().GetHeaders())},
		payloadField(m.GetMessage().GetPayload()),
	}
}

// listedStored is storedFields for a table, whose columns have one name for all rows: what is not text is marked.
func listedStored(m *pb.StoredMessage) []field {
	fields := storedFields(m)
	if last := &fields[len(fields)-1]; last.name != "payload" {
		last.name, last.value = "payload", "base64:"+last.value.(string)
	}
	return fields
}

// fittedStored is listedStored with the beginning of the payload alone, for a terminal.
func fittedStored(m *pb.StoredMessage) []field {
	fields := listedStored(m)
	last := &fields[len(fields)-1]
	last.value = clipped(last.value.(string), 36) // beside a receipt it fits 80 columns
	return fields
}

// payloadField is the payload as text, or in base64 under another name when it is not valid UTF-8.
func payloadField(payload []byte) field {
	if utf8.Valid(payload) {
		return field{name: "payload", value: string(payload)}
	}
	return field{name: "payload_base64", value: base64.StdEncoding.EncodeToString(payload)}
}

func headers(h map[string]string) map[string]string {
	if h == nil {
		return map[string]string{}
	}
	return h
}

const timeLayout = "2006-01-02T15:04:05.000Z07:00"

func instant(t *timestamppb.Timestamp) any {
	if t == nil {
		return nil
	}
	return t.AsTime().UTC().Format(timeLayout)
}

// duration is like 24h, 1m30s or 0s: without the zero units that time.Duration prints.
func duration(d *durationpb.Duration) string { return shortDuration(d.AsDuration()) }

func shortDuration(d time.Duration) string {
	s := d.String()
	if len(s) > 2 && s[len(s)-2:] == "0s" && s[len(s)-3] == 'm' {
		s = s[:len(s)-2]
	}
	if len(s) > 2 && s[len(s)-2:] == "0m" && s[len(s)-3] == 'h' {
		s = s[:len(s)-2]
	}
	return s
}
