package clienttest_test

import (
	"context"
	"fmt"
	"log"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/client/clienttest"
	"github.com/columbamq/columba/core"
)

// A broker without a test: it publishes and works.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	b, err := clienttest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	c := b.Client()
	if _, err := c.Admin().CreateQueue(ctx, core.QueueSpec{Path: "/demo/trips"}); err != nil {
		log.Fatal(err)
	}
	if _, err := c.Admin().CreateGroup(ctx, core.GroupSpec{Queue: "/demo/trips", Name: "billing"}); err != nil {
		log.Fatal(err)
	}
	pub, err := c.Publisher(ctx, "/demo/trips")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pub.Publish(ctx, client.Message{Body: []byte("to the station")}); err != nil {
		log.Fatal(err)
	}
	err = c.Work(ctx, "/demo/trips", "billing", func(_ context.Context, d *client.Delivery) error {
		fmt.Printf("%s, attempt %d\n", d.Body, d.Attempt)
		if d.Attempt == 1 {
			return client.Retry(0)
		}
		stop()
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// to the station, attempt 1
	// to the station, attempt 2
}

// A program that dials by itself is given the broker's network.
func ExampleBroker_NetDial() {
	b, err := clienttest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	c, err := client.Dial(context.Background(), clienttest.Addr, client.WithNetDial(b.NetDial))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	hosts, err := c.Admin().ListHosts(context.Background())
	fmt.Println(len(hosts), hosts[0].Roles, err)
	// Output: 1 [controller frontend inputhost outputhost storehost] <nil>
}

// Clients connect again by themselves.
func ExampleBroker_Disconnect() {
	ctx := context.Background()
	b, err := clienttest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Client().Admin().CreateQueue(ctx, core.QueueSpec{Path: "/demo/trips"}); err != nil {
		log.Fatal(err)
	}
	pub, err := b.Client().Publisher(ctx, "/demo/trips")
	if err != nil {
		log.Fatal(err)
	}
	for _, body := range []string{"before", "after"} {
		_, err := pub.Publish(ctx, client.Message{Body: []byte(body)})
		fmt.Println(body, err)
		b.Disconnect()
	}
	// Output:
	// before <nil>
	// after <nil>
}
