package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

func Example() {
	ctx := context.Background()
	c, err := client.Dial(ctx, "127.0.0.1:4922")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	if _, err := c.Admin().CreateQueue(ctx, core.QueueSpec{Path: "/demo/trips"}); err != nil && !errors.Is(err, client.ErrExists) {
		log.Fatal(err)
	}
	pub, err := c.Publisher(ctx, "/demo/trips")
	if err != nil {
		log.Fatal(err)
	}
	receipt, err := pub.Publish(ctx, client.Message{Body: []byte("to the station"), Key: "rider-7"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("stored at", receipt)
	if err := pub.Close(ctx); err != nil {
		log.Fatal(err)
	}
}

func ExamplePublisher_PublishAsync() {
	ctx := context.Background()
	var pub *client.Publisher // of Client.Publisher
	for i := range 1000 {
		err := pub.PublishAsync(ctx, client.Message{Body: fmt.Append(nil, i)}, func(r client.Receipt, err error) {
			switch {
			case errors.Is(err, client.ErrUnknownOutcome):
				log.Printf("%s may or may not be stored", r.ID)
			case err != nil:
				log.Printf("%s is not stored: %v", r.ID, err)
			}
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := pub.Flush(ctx); err != nil {
		log.Fatal(err)
	}
}

func ExampleClient_Work() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	var c *client.Client // of Dial
	err := c.Work(ctx, "/demo/trips", "billing", func(ctx context.Context, d *client.Delivery) error {
		switch string(d.Body) {
		case "":
			return client.Reject("empty trip") // to the dead letter queue
		case "busy":
			return client.Retry(30 * time.Second) // again, later
		}
		return nil // done
	}, client.Concurrency(16))
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleConsumer_Deliveries() {
	ctx := context.Background()
	var con *client.Consumer // of Client.Consumer
	for d, err := range con.Deliveries(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if len(d.Body) == 0 {
			d.Nack(client.After(time.Minute), client.Reason("not ready"))
			continue
		}
		d.Ack()
	}
}
