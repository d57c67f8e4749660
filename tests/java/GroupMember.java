import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a group that tells what it has, one line of JSON each, as tests/clients/group_member.py does: {@code
 * GroupMember BOOTSTRAP GROUP TOPIC key=value...}. It ends in order when its standard input does.
 */
public final class GroupMember {
    private static volatile boolean stopped;

    private GroupMember() {
    }

    private static synchronized void tell(String event, String fields) {
        double time = System.nanoTime() / 1e9;
        System.out.println("{\"event\": \"" + event + "\", \"time\": " + time + fields + "}");
        System.out.flush();
    }

    private static String numbers(Collection<TopicPartition> partitions) {
        TreeSet<Integer> sorted = partitions.stream().map(TopicPartition::partition)
            .collect(Collectors.toCollection(TreeSet::new));
        return ", \"partitions\": " + sorted;
    }

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("auto.commit.interval.ms", "200");
        for (int at = 3; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (java.io.IOException ignored) {
                // It is the end either way.
            }
            stopped = true;
        });
        watcher.setDaemon(true);
        watcher.start();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments[2]), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    tell("assigned", numbers(partitions));
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    tell("revoked", numbers(partitions));
                }
            });
            while (!stopped) {
                List<ConsumerRecord<String, String>> records = new ArrayList<>();
                consumer.poll(Duration.ofMillis(100)).forEach(records::add);
                for (ConsumerRecord<String, String> record : records) {
                    tell("record", ", \"partition\": " + record.partition() + ", \"offset\": " + record.offset());
                }
            }
        }
        tell("closed", "");
    }
}
