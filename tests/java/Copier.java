import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Reads from one topic and writes to the same partition of another, each record once, until it is killed.
 *
 * Arguments: address of the broker, input topic, output topic, consumer group, transactional id, group protocol
 * (classic or consumer). Records, and how far they have been read, are in one transaction. Who of the group reads what
 * changes as members come and go: it is the group's member id and epoch, sent with the offsets, that shut out one that
 * does not know yet that it lost a partition.
 */
public class Copier {
    public static void main(String[] args) throws InterruptedException {
        while (true) {
            try {
                copy(args);
            } catch (KafkaException failure) {
                // Fenced, or in a state that only a new producer gets out of; it aborts what this one has left open.
                System.err.println(failure);
            }
        }
    }

    private static void copy(String[] args) throws InterruptedException {
        Properties reading = new Properties();
        reading.put("bootstrap.servers", args[0]);
        reading.put("group.id", args[3]);
        reading.put("group.protocol", args[5]);
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "earliest");
        reading.put("isolation.level", "read_committed");
        reading.put("max.poll.records", "20");
        if (args[5].equals("classic")) {
            reading.put("session.timeout.ms", "2000");
            reading.put("heartbeat.interval.ms", "300");
        }
        Properties writing = new Properties();
        writing.put("bootstrap.servers", args[0]);
        writing.put("transactional.id", args[4]);
        writing.put("transaction.timeout.ms", "5000");
        writing.put("max.block.ms", "15000");
        writing.put("linger.ms", "0");
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
             KafkaProducer<String, String> producer =
                 new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(args[1]));
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty())
                    continue;
                producer.beginTransaction();
                try {
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    for (ConsumerRecord<String, String> one : records) {
                        producer.send(new ProducerRecord<>(args[2], one.partition(), null, one.value()));
                        Thread.sleep(1);  // what it does with a record takes time, in which it can be killed
                        offsets.put(new TopicPartition(one.topic(), one.partition()), new OffsetAndMetadata(one.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    producer.commitTransaction();
                } catch (KafkaException failure) {
                    System.err.println(failure);
                    producer.abortTransaction();
                    goBack(consumer);
                }
            }
        }
    }

    /** What was aborted is to be read again. */
    private static void goBack(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        committed.forEach((partition, offset) -> consumer.seek(partition, offset == null ? 0 : offset.offset()));
    }
}
