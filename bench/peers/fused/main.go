// The route job of bench/pipeline.py as a Go programmer would write it: franz-go and a fast JSON library.
//
// Binary CloudEvents in; those of one type whose amount is above 100 leave in structured mode, with the
// subject set from the data. Offsets are marked when a record is handed to the producer. BENCH_FORM=splice takes
// the other form, in splice.go.
package main

import (
	"context"
	"log"
	"os"

	"github.com/goccy/go-json"
	"github.com/twmb/franz-go/pkg/kgo"
)

const orderPlaced = "com.shop.order.placed"

func main() {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Getenv("BENCH_BOOTSTRAP")),
		kgo.ConsumerGroup(os.Getenv("BENCH_GROUP")),
		kgo.ConsumeTopics(os.Getenv("BENCH_SOURCE")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DefaultProduceTopic(os.Getenv("BENCH_TARGET")),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(20e6),
		kgo.AutoCommitMarks(),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	route := routed
	if os.Getenv("BENCH_FORM") == "splice" {
		route = spliced
	}
	for {
		fetches := client.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			log.Fatal(errs[0].Err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if out := route(record); out != nil {
				client.Produce(ctx, out, func(_ *kgo.Record, err error) {
					if err != nil {
						log.Fatal(err)
					}
				})
			}
			client.MarkCommitRecords(record)
		})
	}
}

// largeOrder gives the customer of an order, and whether its amount is above 100.
func largeOrder(value []byte) (string, bool) {
	var data struct {
		Amount   float64 `json:"amount"`
		Customer string  `json:"customer"`
	}
	err := json.Unmarshal(value, &data)
	return data.Customer, err == nil && data.Amount > 100
}

// routed gives the record to write; nil if the route does not take the event.
func routed(record *kgo.Record) *kgo.Record {
	event := make(map[string]any, len(record.Headers)+2)
	for _, header := range record.Headers {
		if len(header.Key) > 3 && header.Key[:3] == "ce_" {
			event[header.Key[3:]] = string(header.Value)
		} else if header.Key == "content-type" {
			event["datacontenttype"] = string(header.Value)
		}
	}
	if event["type"] != orderPlaced {
		return nil
	}
	customer, large := largeOrder(record.Value)
	if !large {
		return nil
	}
	event["subject"] = customer
	event["data"] = json.RawMessage(record.Value)
	value, err := json.Marshal(event)
	if err != nil {
		return nil
	}
	return &kgo.Record{
		Key:     record.Key,
		Value:   value,
		Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte("application/cloudevents+json; charset=UTF-8")}},
	}
}
