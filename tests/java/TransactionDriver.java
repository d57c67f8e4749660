import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactional producers of the Java client, step by step.
 *
 * A question is a line of JSON on the standard input, {"op": ..., "name": of the producer, ...}; its answer is a line of JSON
 * on the standard output: {"result": ...}, or {"error": simple class name, "message": text}.
 */
public class TransactionDriver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int SECONDS = 60;
    private static final Map<String, KafkaProducer<String, String>> PRODUCERS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("result", answer(JSON.readTree(line)));
            } catch (Exception failure) {
                Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
                answer.put("error", cause.getClass().getSimpleName());
                answer.put("message", String.valueOf(cause.getMessage()));
            }
            out.println(JSON.writeValueAsString(answer));
        }
        for (KafkaProducer<String, String> producer : PRODUCERS.values())
            producer.close(Duration.ZERO);
    }

    private static Object answer(JsonNode question) throws Exception {
        String name = question.path("name").asText();
        switch (question.get("op").asText()) {
            case "open": {
                Properties settings = new Properties();
                settings.put("bootstrap.servers", question.get("bootstrap").asText());
                question.get("config").properties().forEach(one -> settings.put(one.getKey(), one.getValue().asText()));
                PRODUCERS.put(name, new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer()));
                return null;
            }
            case "init":
                producer(name).initTransactions();
                return null;
            case "begin":
                producer(name).beginTransaction();
                return null;
            case "send": {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (JsonNode value : question.get("values"))
                    sent.add(producer(name).send(new ProducerRecord<>(
                        question.get("topic").asText(), question.path("partition").asInt(0), null, value.asText())));
                producer(name).flush();
                List<Long> offsets = new ArrayList<>();
                for (Future<RecordMetadata> one : sent)
                    offsets.add(one.get(SECONDS, TimeUnit.SECONDS).offset());
                return offsets;
            }
            case "send_offsets": {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                offsets.put(
                    new TopicPartition(question.get("topic").asText(), question.path("partition").asInt(0)),
                    new OffsetAndMetadata(question.get("offset").asLong()));
                producer(name).sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(question.get("group").asText()));
                return null;
            }
            case "commit":
                producer(name).commitTransaction();
                return null;
            case "abort":
                producer(name).abortTransaction();
                return null;
            case "close":
                PRODUCERS.remove(name).close(Duration.ofMillis(question.path("timeout_ms").asLong(5000)));
                return null;
            default:
                return administer(question);
        }
    }

    private static KafkaProducer<String, String> producer(String name) {
        return PRODUCERS.get(name);
    }

    private static Object administer(JsonNode question) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", question.get("bootstrap").asText());
        try (Admin admin = Admin.create(settings)) {
            switch (question.get("op").asText()) {
                case "list_transactions": {
                    Map<String, List<Object>> result = new TreeMap<>();
                    for (TransactionListing one : admin.listTransactions().all().get(SECONDS, TimeUnit.SECONDS))
                        result.put(one.transactionalId(), List.of(one.producerId(), one.state().toString()));
                    return result;
                }
                case "describe_transaction": {
                    String id = question.get("id").asText();
                    TransactionDescription found =
                        admin.describeTransactions(List.of(id)).description(id).get(SECONDS, TimeUnit.SECONDS);
                    Map<String, Object> result = new TreeMap<>();
                    result.put("coordinator", found.coordinatorId());
                    result.put("state", found.state().toString());
                    result.put("producer_id", found.producerId());
                    result.put("producer_epoch", found.producerEpoch());
                    result.put("timeout_ms", found.transactionTimeoutMs());
                    result.put("started", found.transactionStartTimeMs().isPresent());
                    List<String> partitions = new ArrayList<>();
                    found.topicPartitions().forEach(one -> partitions.add(one.toString()));
                    result.put("partitions", partitions);
                    return result;
                }
                case "committed_offsets": {
                    Map<String, Long> result = new TreeMap<>();
                    admin.listConsumerGroupOffsets(question.get("group").asText()).partitionsToOffsetAndMetadata()
                        .get(SECONDS, TimeUnit.SECONDS)
                        .forEach((partition, offset) -> result.put(partition.toString(), offset.offset()));
                    return result;
                }
                case "fence": {
                    admin.fenceProducers(List.of(question.get("id").asText())).all().get(SECONDS, TimeUnit.SECONDS);
                    return null;
                }
                case "abort_transaction": {
                    admin.abortTransaction(new AbortTransactionSpec(
                        new TopicPartition(question.get("topic").asText(), question.get("partition").asInt()),
                        question.get("producer_id").asLong(),
                        (short) question.get("producer_epoch").asInt(),
                        question.get("coordinator_epoch").asInt())).all().get(SECONDS, TimeUnit.SECONDS);
                    return null;
                }
                default:
                    throw new IllegalArgumentException(question.get("op").asText());
            }
        }
    }
}
