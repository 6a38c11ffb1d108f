package cli

import (
	"bufio"
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/deliverytoken"
)

// settleChunk is how many tokens one request settles.
const settleChunk = 1000

const tokensHelp = "A delivery token is the proof of one delivery (SQS: receipt handle). A receipt is no token: it names where a message is stored.\n" +
	"Tokens come from `columba consume --ack tokens`; the argument - reads them from stdin, one per line. Tokens that are\n" +
	"refused are listed on stderr, the others are applied. With one token the exit code says why it was refused; with many it is\n" +
	"1 when any was."

func (a *app) ackCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ack TOKEN…", Short: "Acknowledge deliveries by their tokens", Long: "Acknowledge deliveries by their tokens.\n\n" + tokensHelp,
		Example: "  columba consume /demo/trips billing --ack tokens -o json | jq -r .token | columba ack -",
		Args:    atLeastOneToken,
		RunE: a.run(func(ctx context.Context, args []string) error {
			api := a.messages()
			return a.settle(ctx, args, "acknowledged", func(tokens []string) (*pb.SettleResponse, error) {
				return change(ctx, a, api.Ack, &pb.AckRequest{Tokens: tokens})
			})
		}),
	}
}

func (a *app) nackCommand() *cobra.Command {
	var delay time.Duration
	var reason, metadata string
	cmd := &cobra.Command{
		Use: "nack TOKEN…", Short: "Nack deliveries by their tokens", Long: "Nack deliveries by their tokens: the attempts failed, and the messages are delivered again.\n\n" + tokensHelp,
		Example: "  columba nack $TOKEN --delay 30s --reason 'upstream is down'",
		Args:    atLeastOneToken,
	}
	durationVar(cmd.Flags(), &delay, "delay", 0, "deliver again after this long; default: the group's backoff")
	cmd.Flags().StringVar(&reason, "reason", "", "why; it is kept with the message")
	cmd.Flags().StringVar(&metadata, "metadata", "", "metadata of the next deliveries, in place of those of an earlier nack")
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		if delay < 0 {
			return core.Errorf(core.CodeBadArgument, "delay %s is negative; use something like 30s", delay)
		}
		api := a.messages()
		return a.settle(ctx, args, "nacked", func(tokens []string) (*pb.SettleResponse, error) {
			return change(ctx, a, api.Nack, &pb.NackRequest{Tokens: tokens, Delay: optional(cmd, "delay", delay), Reason: reason, Metadata: []byte(metadata)})
		})
	})
	return cmd
}

func (a *app) rejectCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "reject TOKEN… --reason TEXT", Short: "Make deliveries dead letters at once, by their tokens", Long: "Make deliveries dead letters at once, by their tokens.\n\n" + tokensHelp,
		Example: "  columba reject $TOKEN --reason 'not a trip'",
		Args:    atLeastOneToken,
		RunE: a.run(func(ctx context.Context, args []string) error {
			if reason == "" {
				return core.Errorf(core.CodeBadArgument, "a reason is missing; say why with --reason TEXT")
			}
			api := a.messages()
			return a.settle(ctx, args, "rejected", func(tokens []string) (*pb.SettleResponse, error) {
				return change(ctx, a, api.Reject, &pb.RejectRequest{Tokens: tokens, Reason: reason})
			})
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; it is kept with the dead letter")
	return cmd
}

func (a *app) extendCommand() *cobra.Command {
	return &cobra.Command{
		Use: "extend TOKEN DURATION", Short: "Keep a delivery locked for this long from now, by its token",
		Long:    "Keep a delivery locked for this long from now, by its token.\n\n" + tokensHelp,
		Example: "  columba extend $TOKEN 10m",
		Args:    exactly(2),
		RunE: a.run(func(ctx context.Context, args []string) error {
			by, err := core.ParseDuration(args[1])
			if err != nil || by <= 0 {
				return core.Errorf(core.CodeBadArgument, "%q is not a duration above 0; use something like 30s", clip(args[1]))
			}
			api := a.messages()
			return a.settle(ctx, args[:1], "extended", func(tokens []string) (*pb.SettleResponse, error) {
				return change(ctx, a, api.Extend, &pb.ExtendRequest{Tokens: tokens, By: durationpb.New(by)})
			})
		}),
	}
}

func atLeastOneToken(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return core.Errorf(core.CodeBadArgument, "a token is missing; see `%s --help`", cmd.CommandPath())
	}
	return nil
}

// settle calls apply for the tokens, chunk by chunk, and reports each token's outcome. A repeated token counts once.
func (a *app) settle(ctx context.Context, args []string, done string, apply func([]string) (*pb.SettleResponse, error)) error {
	tokens, err := a.tokens(args)
	if err != nil {
		return err
	}
	tokens = deliverytoken.Distinct(tokens)
	out := a.printer()
	failed, applied := 0, 0
	var last error
	for first := 0; first < len(tokens); first += settleChunk {
		chunk := tokens[first:min(first+settleChunk, len(tokens))]
		res, err := apply(chunk)
		if err != nil {
			if applied > 0 {
				a.say("%d tokens %s before that", applied, done)
			}
			return err
		}
		refused := map[string]error{}
		for _, f := range res.GetFailures() {
			refused[f.GetToken()] = convert.ErrorFromProto(f.GetError())
		}
		for _, token := range chunk {
			fields := []field{{name: "token", value: token}, {name: "ok", value: true}}
			if last = refused[token]; last != nil {
				failed++
				fields = []field{{name: "token", value: token}, {name: "ok", value: false}, {name: "error", value: string(core.CodeOf(last))}}
				if len(tokens) > 1 {
					a.complain("token "+clip(token), last)
				}
			} else {
				applied++
			}
			if a.format != formatTable {
				out.item(fields)
			}
		}
	}
	if err := out.close(); err != nil {
		return err
	}
	switch {
	case failed == 0:
		a.say("%d %s", applied, done)
		return nil
	case len(tokens) == 1:
		return last
	}
	a.say("%d %s, %d refused", applied, done, failed)
	return errFailed
}

// tokens are the arguments, or the lines of stdin for "-".
func (a *app) tokens(args []string) ([]string, error) {
	if len(args) != 1 || args[0] != "-" {
		return args, nil
	}
	var tokens []string
	scanner := bufio.NewScanner(a.stdin)
	scanner.Buffer(nil, maxLine)
	lines := 0
	for ; scanner.Scan(); lines++ {
		if scanner.Text() != "" {
			tokens = append(tokens, scanner.Text())
		}
	}
	return tokens, scanError("tokens", lines, scanner.Err())
}
