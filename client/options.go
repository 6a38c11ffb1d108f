package client

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/columbamq/columba/core"
)

// Option changes a Client.
type Option func(*options)

type options struct {
	name    string
	log     *slog.Logger
	netDial func(ctx context.Context, network, addr string) (net.Conn, error)
	timeout time.Duration
	answer  int // bytes of the answer to a call, at most
}

// WithName is the name by which the servers' logs know this client. Default: the program's name and process id.
func WithName(name string) Option { return func(o *options) { o.name = name } }

// WithLogger sets a logger for lost connections and refused settlements. Default: none.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// WithNetDial replaces the TCP dialer for everything this client does.
func WithNetDial(dial func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return func(o *options) { o.netDial = dial }
}

// WithTimeout bounds each call whose context has no deadline. Default 30 s.
func WithTimeout(d time.Duration) Option {
	return func(o *options) { o.timeout = min(d, core.LongestWait) }
}

// PublisherOption changes a Publisher.
type PublisherOption func(*publisherOptions)

type publisherOptions struct {
	timeout  time.Duration
	messages int
	bytes    int
}

// PublishTimeout is how long a Publisher tries to publish a message before it fails. While a CP queue takes nothing
// because no majority of the metadata answers, it fails after about 3 s, with ErrNoMajority, and while the disks of the
// stores are full, with ErrNoSpace. Default 30 s; a context that ends sooner shortens it.
func PublishTimeout(d time.Duration) PublisherOption {
	return func(o *publisherOptions) { o.timeout = d }
}

// MaxInFlight limits the messages without an outcome, and their bytes as stored, that a Publisher holds; above it
// PublishAsync waits. Default 65,536 messages, 32 MiB.
func MaxInFlight(messages, bytes int) PublisherOption {
	return func(o *publisherOptions) { o.messages, o.bytes = messages, bytes }
}

// WorkOption changes Work.
type WorkOption interface{ applyWork(*workOptions) }

// ConsumerOption changes a Consumer; Work takes them too.
type ConsumerOption interface {
	WorkOption
	applyConsumer(*consumerOptions)
}

type consumerOptions struct {
	prefetch      int
	prefetchBytes int
	limit         int
	tokens        bool
	refused       func(Refusal)
	watch         lockWatch // of Work; nil: nobody
}

type workOptions struct {
	consumer    consumerOptions
	concurrency int
	grace       time.Duration
}

type consumerOption func(*consumerOptions)

func (f consumerOption) applyConsumer(o *consumerOptions) { f(o) }
func (f consumerOption) applyWork(o *workOptions)         { f(&o.consumer) }

type workOption func(*workOptions)

func (f workOption) applyWork(o *workOptions) { f(o) }

// Prefetch sets how many messages the consumer keeps ready for the application. Default 2,000; Work: four for each
// handler, at least 16. At most 1,048,576: more is taken as that. The number is divided among the output hosts, at
// least one for each. When a host joins, the others reduce their part once the application has taken the messages that
// they had already been asked for.
//
// Prefetched messages are locked: their lock timeout runs. Use a small number for slow handlers, so that other
// consumers get messages, too. PrefetchBytes limits the same in bytes.
func Prefetch(messages int) ConsumerOption {
	return consumerOption(func(o *consumerOptions) { o.prefetch = messages })
}

// PrefetchBytes limits the prefetched messages in bytes. Default 8 MiB; a single larger message is still delivered.
func PrefetchBytes(bytes int) ConsumerOption {
	return consumerOption(func(o *consumerOptions) { o.prefetchBytes = bytes })
}

// Limit ends Deliveries, or Work, after this many messages. The consumer never asks the hosts together for more than
// that. So no message is locked without need, and an at-most-once group loses none. Messages that the client released
// without showing them to the application, or that were on a lost connection, are asked for again. Default: no limit.
func Limit(messages int) ConsumerOption {
	return consumerOption(func(o *consumerOptions) { o.limit = messages })
}

// WithTokens asks for the token of each delivery, by which another process can settle it.
func WithTokens() ConsumerOption {
	return consumerOption(func(o *consumerOptions) { o.tokens = true })
}

// OnRefused sets a function that is called when a settlement or an extension could not be applied after Ack, Nack,
// Reject or Extend had returned nil. Delivery.Ack lists the errors. f is called on a goroutine of the consumer and must
// not block.
func OnRefused(f func(Refusal)) ConsumerOption {
	return consumerOption(func(o *consumerOptions) { o.refused = f })
}

// Concurrency is how many handlers Work runs at once. Default 1. Unless Prefetch is given, Work prefetches four
// messages for each handler, at least 16.
func Concurrency(n int) WorkOption { return workOption(func(o *workOptions) { o.concurrency = n }) }

// Grace is how long Work waits, once its context has ended, for handlers that still run. Then it ends their contexts.
// Default 30 s.
func Grace(d time.Duration) WorkOption { return workOption(func(o *workOptions) { o.grace = d }) }

// NackOption changes a Nack.
type NackOption func(*nackOptions)

type nackOptions struct {
	delay    time.Duration
	hasDelay bool
	reason   string
	metadata []byte
}

// After delivers the message again after this delay instead of the group's backoff: 0 to 12 h, in whole milliseconds.
func After(d time.Duration) NackOption {
	return func(o *nackOptions) { o.delay, o.hasDelay = d, true }
}

// Reason is the text of a nack. The group keeps it with the message, also if it becomes a dead letter. Cut at 1 KiB.
func Reason(text string) NackOption { return func(o *nackOptions) { o.reason = text } }

// Metadata replaces the message's metadata, at most 16 KiB, for its next deliveries. The message then moves to the
// group's retry queue, however short its delay.
func Metadata(b []byte) NackOption { return func(o *nackOptions) { o.metadata = b } }
