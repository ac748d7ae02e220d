package main

import "github.com/twmb/franz-go/pkg/kgo"

var mark = []byte("application/cloudevents+json; charset=UTF-8")

// spliced does what routed does with bytes: no map, and the JSON library only reads.
func spliced(record *kgo.Record) *kgo.Record {
	if !isPlaced(record.Headers) {
		return nil
	}
	customer, large := largeOrder(record.Value)
	if !large {
		return nil
	}
	value := make([]byte, 0, len(record.Value)+512)
	value = append(value, '{')
	for _, header := range record.Headers {
		if name := attribute(header.Key); name != "" {
			value = append(append(append(value, '"'), name...), '"', ':')
			value = append(quoted(value, string(header.Value)), ',')
		}
	}
	value = quoted(append(value, `"subject":`...), customer)
	value = append(append(append(value, `,"data":`...), record.Value...), '}')
	return &kgo.Record{
		Key:     record.Key,
		Value:   value,
		Headers: []kgo.RecordHeader{{Key: "content-type", Value: mark}},
	}
}

func isPlaced(headers []kgo.RecordHeader) bool {
	for _, header := range headers {
		if header.Key == "ce_type" {
			return string(header.Value) == orderPlaced
		}
	}
	return false
}

// attribute gives the name of the attribute that a header is; "" if it is none, or the subject, which is set.
func attribute(key string) string {
	if key == "content-type" {
		return "datacontenttype"
	}
	if len(key) > 3 && key[:3] == "ce_" && key != "ce_subject" {
		return key[3:]
	}
	return ""
}

// quoted appends a text as a JSON string.
func quoted(to []byte, text string) []byte {
	const digits = "0123456789abcdef"
	to = append(to, '"')
	start := 0
	for i := 0; i < len(text); i++ {
		if c := text[i]; c == '"' || c == '\\' || c < ' ' {
			to = append(to, text[start:i]...)
			if c < ' ' {
				to = append(to, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
			} else {
				to = append(to, '\\', c)
			}
			start = i + 1
		}
	}
	return append(append(to, text[start:]...), '"')
}
