import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/** Counts the words of a topic: BOOTSTRAP APPLICATION INPUT OUTPUT FOLDER; ends when its input does. */
public class WordCount {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", args[1]);
        settings.put("state.dir", args[4]);
        settings.put("commit.interval.ms", "200");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("auto.offset.reset", "earliest");
        // Streams does not leave its group when it is closed: the next run waits until this member has timed out.
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "1000");

        var text = Serdes.String();
        var number = Serdes.Long();
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[2], Consumed.with(text, text))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", text, text))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(text).withValueSerde(number))
            .toStream()
            .mapValues(String::valueOf)
            .to(args[3], Produced.with(text, text));

        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.setStateListener((now, before) -> System.out.println("state " + now));
            streams.setUncaughtExceptionHandler(error -> {
                error.printStackTrace();
                Runtime.getRuntime().halt(3);
                return null;
            });
            streams.start();
            while (System.in.read() >= 0) { }
        }
    }
}
