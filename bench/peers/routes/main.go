// The route job of bench/pipeline.py between Kafka and Pulsar, as a Go programmer would write it: franz-go,
// pulsar-client-go, and a fast JSON library.
//
// Binary CloudEvents in; those of one type whose amount is above 100 leave in structured mode, with the subject
// set from the data. Input is marked or acknowledged when its output is handed to the producer, so a crash may
// lose records.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/goccy/go-json"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	orderPlaced = "com.shop.order.placed"
	structured  = "application/cloudevents+json; charset=UTF-8"
	batchBytes  = 128 * 1024
)

type attribute struct {
	name  string
	value string
}

// routed gives the value to write; nil if the route does not take the event.
func routed(attributes []attribute, value []byte) []byte {
	event := make(map[string]any, len(attributes)+2)
	for _, each := range attributes {
		if len(each.name) > 3 && each.name[:3] == "ce_" {
			event[each.name[3:]] = each.value
		} else if each.name == "content-type" {
			event["datacontenttype"] = each.value
		}
	}
	if event["type"] != orderPlaced {
		return nil
	}
	var data struct {
		Amount   float64 `json:"amount"`
		Customer string  `json:"customer"`
	}
	if err := json.Unmarshal(value, &data); err != nil || data.Amount <= 100 {
		return nil
	}
	event["subject"] = data.Customer
	event["data"] = json.RawMessage(value)
	out, err := json.Marshal(event)
	if err != nil {
		return nil
	}
	return out
}

type sender func(key string, value []byte)

func toKafka(ctx context.Context) sender {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Getenv("BENCH_KAFKA")),
		kgo.DefaultProduceTopic(os.Getenv("BENCH_TARGET")),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(20*time.Millisecond),
	)
	if err != nil {
		log.Fatal(err)
	}
	return func(key string, value []byte) {
		record := &kgo.Record{
			Key:     []byte(key),
			Value:   value,
			Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte(structured)}},
		}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			if err != nil {
				log.Fatal(err)
			}
		})
	}
}

func toPulsar(ctx context.Context, client pulsar.Client) sender {
	producer, err := client.CreateProducer(pulsar.ProducerOptions{
		Topic:                   os.Getenv("BENCH_TARGET"),
		BatchingMaxPublishDelay: 20 * time.Millisecond,
		BatchingMaxMessages:     1000,
		BatchingMaxSize:         batchBytes,
		MaxPendingMessages:      10000,
	})
	if err != nil {
		log.Fatal(err)
	}
	return func(key string, value []byte) {
		message := &pulsar.ProducerMessage{
			Key:        key,
			Payload:    value,
			Properties: map[string]string{"content-type": structured},
		}
		producer.SendAsync(ctx, message, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				log.Fatal(err)
			}
		})
	}
}

func fromKafka(ctx context.Context, send sender) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Getenv("BENCH_KAFKA")),
		kgo.ConsumerGroup(os.Getenv("BENCH_GROUP")),
		kgo.ConsumeTopics(os.Getenv("BENCH_SOURCE")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AutoCommitMarks(),
	)
	if err != nil {
		log.Fatal(err)
	}
	attributes := make([]attribute, 0, 16)
	for {
		fetches := client.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			log.Fatal(errs[0].Err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			attributes = attributes[:0]
			for _, header := range record.Headers {
				attributes = append(attributes, attribute{header.Key, string(header.Value)})
			}
			if out := routed(attributes, record.Value); out != nil {
				send(string(record.Key), out)
			}
			client.MarkCommitRecords(record)
		})
	}
}

func fromPulsar(ctx context.Context, client pulsar.Client, send sender) {
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{
		Topic:                       os.Getenv("BENCH_SOURCE"),
		SubscriptionName:            os.Getenv("BENCH_GROUP"),
		Type:                        pulsar.Failover,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		ReceiverQueueSize:           10000,
	})
	if err != nil {
		log.Fatal(err)
	}
	attributes := make([]attribute, 0, 16)
	for {
		message, err := consumer.Receive(ctx)
		if err != nil {
			log.Fatal(err)
		}
		attributes = attributes[:0]
		for name, value := range message.Properties() {
			attributes = append(attributes, attribute{name, value})
		}
		if out := routed(attributes, message.Payload()); out != nil {
			send(message.Key(), out)
		}
		if err := consumer.Ack(message); err != nil {
			log.Fatal(err)
		}
	}
}

func main() {
	ctx := context.Background()
	var client pulsar.Client
	if url := os.Getenv("BENCH_PULSAR"); url != "" {
		var err error
		client, err = pulsar.NewClient(pulsar.ClientOptions{URL: url})
		if err != nil {
			log.Fatal(err)
		}
	}
	send := toKafka
	if os.Getenv("BENCH_TO") == "pulsar" {
		send = func(ctx context.Context) sender { return toPulsar(ctx, client) }
	}
	if os.Getenv("BENCH_FROM") == "pulsar" {
		fromPulsar(ctx, client, send(ctx))
	}
	fromKafka(ctx, send(ctx))
}
