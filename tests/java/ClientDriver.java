import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DeleteAclsResult;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.PartitionReassignment;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ReplicaInfo;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Java client, driven from outside.
 *
 * A question is a line of JSON on the standard input, {"op": ..., "bootstrap": address, ...}; its answer a line of JSON on
 * the standard output: {"result": ...}, or {"error": simple class name, "message": text}. Where the client reports on each
 * topic or partition by itself, a failure stands in the place of that one's result, as {"error": simple class name}.
 * A partition is written as topic-number. With "controller" the address is one of a controller. "set_property" sets a
 * system property.
 *
 * An admin client is kept for each address. Producers and consumers live as long as the question, with the settings in
 * "config"; a producer that is to live on is given a "name".
 */
public class ClientDriver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int SECONDS = 60;

    private static final Map<String, Admin> ADMINS = new HashMap<>();
    private static final Map<String, KafkaProducer<String, String>> PRODUCERS = new HashMap<>();

    private interface Read<T> {
        Object of(T value) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("result", answer(JSON.readTree(line)));
            } catch (Throwable thrown) {
                Throwable error = cause(thrown);
                answer.put("error", error.getClass().getSimpleName());
                answer.put("message", error.getMessage());
            }
            out.println(JSON.writeValueAsString(answer));
        }
        Runtime.getRuntime().halt(0);
    }

    private static Throwable cause(Throwable error) {
        while (error instanceof ExecutionException && error.getCause() != null) {
            error = error.getCause();
        }
        return error;
    }

    private static Object answer(JsonNode q) throws Exception {
        switch (q.get("op").asText()) {
            case "set_property": return System.setProperty(q.get("name").asText(), q.get("value").asText());
            case "produce": return produce(q);
            case "close_producer": return closeProducer(q);
            case "transaction": return transaction(q);
            case "partitions_for": return partitionsFor(q);
            case "consume": return consume(q);
            case "offsets_for_times": return offsetsForTimes(q);
            case "consumer_offsets": return consumerOffsets(q);
            case "create_topics": return createTopics(q);
            case "delete_topics": return deleteTopics(q);
            case "list_topics": return listTopics(q);
            case "describe_topics": return describeTopics(q);
            case "create_partitions": return createPartitions(q);
            case "list_offsets": return listOffsets(q);
            case "delete_records": return deleteRecords(q);
            case "describe_configs": return describeConfigs(q);
            case "alter_configs": return alterConfigs(q);
            case "list_config_resources": return listConfigResources(q);
            case "describe_cluster": return describeCluster(q);
            case "describe_log_dirs": return describeLogDirs(q);
            case "alter_replica_log_dirs": return alterReplicaLogDirs(q);
            case "describe_producers": return describeProducers(q);
            case "describe_features": return describeFeatures(q);
            case "update_features": return updateFeatures(q);
            case "describe_quorum": return describeQuorum(q);
            case "elect_leaders": return electLeaders(q);
            case "alter_reassignments": return alterReassignments(q);
            case "list_reassignments": return listReassignments(q);
            case "alter_quotas": return alterQuotas(q);
            case "describe_quotas": return describeQuotas(q);
            case "create_acls": return createAcls(q);
            case "describe_acls": return describeAcls(q);
            case "delete_acls": return deleteAcls(q);
            case "commit_group_offsets": return commitGroupOffsets(q);
            case "group_offsets": return groupOffsets(q);
            case "add_scram": return addScram(q);
            case "describe_scram": return describeScram(q);
            default: throw new IllegalArgumentException("unknown op " + q.get("op"));
        }
    }

    // -- the parts of a question

    private static String text(JsonNode node) {
        return node == null || node.isNull() ? null : node.asText();
    }

    private static List<String> texts(JsonNode node) {
        List<String> found = new ArrayList<>();
        node.forEach(one -> found.add(one.asText()));
        return found;
    }

    private static TopicPartition partition(String name) {
        int dash = name.lastIndexOf('-');
        return new TopicPartition(name.substring(0, dash), Integer.parseInt(name.substring(dash + 1)));
    }

    private static List<TopicPartition> partitions(JsonNode node) {
        List<TopicPartition> found = new ArrayList<>();
        texts(node).forEach(name -> found.add(partition(name)));
        return found;
    }

    private static Properties properties(JsonNode q) {
        Properties properties = new Properties();
        properties.put(q.has("controller") ? "bootstrap.controllers" : "bootstrap.servers", q.get("bootstrap").asText());
        q.path("config").fields().forEachRemaining(one -> properties.put(one.getKey(), one.getValue().asText()));
        return properties;
    }

    private static Admin admin(JsonNode q) {
        Properties properties = properties(q);
        properties.putIfAbsent("default.api.timeout.ms", "60000");
        properties.putIfAbsent("request.timeout.ms", "30000");
        return ADMINS.computeIfAbsent(properties.toString(), key -> Admin.create(properties));
    }

    private static ConfigResource resource(JsonNode node) {
        return new ConfigResource(ConfigResource.Type.valueOf(node.get("type").asText()), node.get("name").asText());
    }

    // -- the parts of an answer

    private static <T> T get(Future<T> future) throws Exception {
        return future.get(SECONDS, TimeUnit.SECONDS);
    }

    private static <T> Object each(Future<T> future, Read<T> read) throws Exception {
        try {
            return read.of(get(future));
        } catch (ExecutionException error) {
            return Map.of("error", cause(error).getClass().getSimpleName());
        }
    }

    private static <K, T> Map<String, Object> each(Map<K, ? extends Future<T>> futures, Read<T> read) throws Exception {
        Map<String, Object> results = new TreeMap<>();
        for (Map.Entry<K, ? extends Future<T>> one : futures.entrySet()) {
            results.put(String.valueOf(one.getKey()), each(one.getValue(), read));
        }
        return results;
    }

    private static List<Integer> ids(Collection<Node> nodes) {
        List<Integer> found = new ArrayList<>();
        nodes.forEach(node -> found.add(node.id()));
        return found;
    }

    private static List<Object> operations(Set<AclOperation> operations) {
        if (operations == null) {
            return null;
        }
        List<Object> names = new ArrayList<>();
        operations.forEach(operation -> names.add(operation.name()));
        return names;
    }

    // -- producer and consumer

    private static Object produce(JsonNode q) throws Exception {
        String name = text(q.get("name"));
        Properties properties = properties(q);
        properties.putIfAbsent("delivery.timeout.ms", "60000");
        properties.putIfAbsent("request.timeout.ms", "30000");
        properties.putIfAbsent("max.block.ms", "10000");
        KafkaProducer<String, String> producer = name == null ? null : PRODUCERS.get(name);
        if (producer == null) {
            producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
        }
        if (name != null) {
            PRODUCERS.put(name, producer);
        }
        try {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : q.get("records")) {
                ProducerRecord<String, String> made = new ProducerRecord<>(
                    q.get("topic").asText(),
                    record.has("partition") ? Integer.valueOf(record.get("partition").asInt()) : null,
                    record.has("timestamp") ? Long.valueOf(record.get("timestamp").asLong()) : null,
                    text(record.get("key")),
                    text(record.get("value")));
                for (JsonNode header : record.path("headers")) {
                    String value = text(header.get(1));
                    made.headers().add(header.get(0).asText(), value == null ? null : value.getBytes(StandardCharsets.UTF_8));
                }
                sent.add(producer.send(made));
            }
            producer.flush();
            List<Object> results = new ArrayList<>();
            for (Future<RecordMetadata> one : sent) {
                results.add(each(one, kept -> List.of(kept.partition(), kept.offset(), kept.timestamp())));
            }
            return results;
        } finally {
            if (name == null) {
                producer.close(Duration.ofSeconds(SECONDS));
            }
        }
    }

    private static Object closeProducer(JsonNode q) {
        KafkaProducer<String, String> producer = PRODUCERS.remove(q.get("name").asText());
        producer.close(Duration.ofSeconds(SECONDS));
        return null;
    }

    /** A transaction of a producer with the settings in "config", ended by "outcome": commit or abort. */
    private static Object transaction(JsonNode q) throws Exception {
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties(q), new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            List<Object> offsets = new ArrayList<>();
            for (String value : texts(q.get("values"))) {
                offsets.add(get(producer.send(new ProducerRecord<>(q.get("topic").asText(), 0, null, value))).offset());
            }
            if (q.get("outcome").asText().equals("commit")) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
            return offsets;
        }
    }

    private static KafkaConsumer<String, String> consumer(JsonNode q) {
        Properties properties = properties(q);
        properties.putIfAbsent("default.api.timeout.ms", "60000");
        properties.putIfAbsent("enable.auto.commit", "false");
        properties.putIfAbsent("auto.offset.reset", "none");
        properties.putIfAbsent("fetch.max.wait.ms", "100"); // a consumer that closes waits for its last fetch
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    private static Object partitionsFor(JsonNode q) {
        try (KafkaConsumer<String, String> consumer = consumer(q)) {
            return consumer.partitionsFor(q.get("topic").asText()).size();
        }
    }

    /** Reads "count" records from "positions" on: an offset, "beginning" or "end" for each partition. */
    private static Object consume(JsonNode q) {
        try (KafkaConsumer<String, String> consumer = consumer(q)) {
            Map<TopicPartition, JsonNode> positions = new HashMap<>();
            q.get("positions").fields().forEachRemaining(one -> positions.put(partition(one.getKey()), one.getValue()));
            consumer.assign(positions.keySet());
            positions.forEach((partition, position) -> {
                switch (position.asText()) {
                    case "beginning": consumer.seekToBeginning(List.of(partition)); break;
                    case "end": consumer.seekToEnd(List.of(partition)); break;
                    default: consumer.seek(partition, position.asLong());
                }
            });
            int count = q.get("count").asInt();
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(q.path("timeout_ms").asLong(SECONDS * 1000));
            List<Object> records = new ArrayList<>();
            while (records.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    records.add(described(record));
                }
            }
            return records;
        }
    }

    private static Object described(ConsumerRecord<String, String> record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<Object> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8));
            headers.add(pair);
        }
        Map<String, Object> made = new LinkedHashMap<>();
        made.put("topic", record.topic());
        made.put("partition", record.partition());
        made.put("offset", record.offset());
        made.put("timestamp", record.timestamp());
        made.put("timestampType", record.timestampType().name);
        made.put("leaderEpoch", record.leaderEpoch().orElse(null));
        made.put("key", record.key());
        made.put("value", record.value());
        made.put("headers", headers);
        return made;
    }

    private static Object offsetsForTimes(JsonNode q) {
        try (KafkaConsumer<String, String> consumer = consumer(q)) {
            Map<TopicPartition, Long> times = new HashMap<>();
            q.get("times").fields().forEachRemaining(one -> times.put(partition(one.getKey()), one.getValue().asLong()));
            Map<String, Object> found = new TreeMap<>();
            for (Map.Entry<TopicPartition, OffsetAndTimestamp> one : consumer.offsetsForTimes(times).entrySet()) {
                OffsetAndTimestamp at = one.getValue();
                found.put(one.getKey().toString(), at == null ? null : List.of(at.offset(), at.timestamp()));
            }
            return found;
        }
    }

    private static Object consumerOffsets(JsonNode q) {
        try (KafkaConsumer<String, String> consumer = consumer(q)) {
            List<TopicPartition> wanted = partitions(q.get("partitions"));
            Map<TopicPartition, Long> first = consumer.beginningOffsets(wanted);
            Map<TopicPartition, Long> last = consumer.endOffsets(wanted);
            Map<String, Object> found = new TreeMap<>();
            wanted.forEach(one -> found.put(one.toString(), List.of(first.get(one), last.get(one))));
            return found;
        }
    }

    // -- topics

    private static Object createTopics(JsonNode q) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (JsonNode topic : q.get("topics")) {
            NewTopic made;
            if (topic.has("assignments")) {
                Map<Integer, List<Integer>> assignments = new HashMap<>();
                for (JsonNode replicas : topic.get("assignments")) {
                    List<Integer> ids = new ArrayList<>();
                    replicas.forEach(id -> ids.add(id.asInt()));
                    assignments.put(assignments.size(), ids);
                }
                made = new NewTopic(topic.get("name").asText(), assignments);
            } else {
                made = new NewTopic(
                    topic.get("name").asText(),
                    topic.has("partitions") ? Optional.of(topic.get("partitions").asInt()) : Optional.empty(),
                    topic.has("factor") ? Optional.of((short) topic.get("factor").asInt()) : Optional.empty());
            }
            Map<String, String> configs = new HashMap<>();
            topic.path("configs").fields().forEachRemaining(one -> configs.put(one.getKey(), one.getValue().asText()));
            topics.add(made.configs(configs));
        }
        CreateTopicsResult result =
            admin(q).createTopics(topics, new CreateTopicsOptions().validateOnly(q.path("validate_only").asBoolean()));
        Map<String, Object> answers = new TreeMap<>();
        for (Map.Entry<String, ? extends Future<Void>> one : result.values().entrySet()) {
            String name = one.getKey();
            answers.put(name, each(one.getValue(), done -> {
                Map<String, Object> made = new LinkedHashMap<>();
                made.put("partitions", result.numPartitions(name).get());
                made.put("factor", result.replicationFactor(name).get());
                made.put("id", result.topicId(name).get().toString());
                Map<String, String> values = new TreeMap<>();
                result.config(name).get().entries().forEach(entry -> values.put(entry.name(), entry.value()));
                made.put("configs", values);
                return made;
            }));
        }
        return answers;
    }

    private static Object deleteTopics(JsonNode q) throws Exception {
        if (q.has("ids")) {
            List<Uuid> ids = new ArrayList<>();
            texts(q.get("ids")).forEach(id -> ids.add(Uuid.fromString(id)));
            return each(admin(q).deleteTopics(TopicCollection.ofTopicIds(ids)).topicIdValues(), done -> "deleted");
        }
        return each(admin(q).deleteTopics(texts(q.get("topics"))).topicNameValues(), done -> "deleted");
    }

    private static Object listTopics(JsonNode q) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        get(admin(q).listTopics(new ListTopicsOptions().listInternal(true)).listings())
            .forEach(one -> found.put(one.name(), one.topicId().toString()));
        return found;
    }

    private static Object describeTopics(JsonNode q) throws Exception {
        DescribeTopicsOptions options = new DescribeTopicsOptions()
            .includeAuthorizedOperations(q.path("operations").asBoolean())
            .partitionSizeLimitPerResponse(q.path("limit").asInt(2000));
        if (q.has("ids")) {
            List<Uuid> ids = new ArrayList<>();
            texts(q.get("ids")).forEach(id -> ids.add(Uuid.fromString(id)));
            return each(
                admin(q).describeTopics(TopicCollection.ofTopicIds(ids), options).topicIdValues(), ClientDriver::described);
        }
        return each(admin(q).describeTopics(texts(q.get("topics")), options).topicNameValues(), ClientDriver::described);
    }

    private static Object described(TopicDescription topic) {
        List<Object> partitions = new ArrayList<>();
        for (TopicPartitionInfo one : topic.partitions()) {
            Map<String, Object> made = new LinkedHashMap<>();
            made.put("partition", one.partition());
            made.put("leader", one.leader().id());
            made.put("replicas", ids(one.replicas()));
            made.put("isr", ids(one.isr()));
            made.put("elr", one.elr() == null ? null : ids(one.elr()));
            made.put("lastKnownElr", one.lastKnownElr() == null ? null : ids(one.lastKnownElr()));
            partitions.add(made);
        }
        Map<String, Object> made = new LinkedHashMap<>();
        made.put("name", topic.name());
        made.put("id", topic.topicId().toString());
        made.put("internal", topic.isInternal());
        made.put("operations", operations(topic.authorizedOperations()));
        made.put("partitions", partitions);
        return made;
    }

    private static Object createPartitions(JsonNode q) throws Exception {
        Map<String, NewPartitions> wanted = new HashMap<>();
        q.get("topics").fields()
            .forEachRemaining(one -> wanted.put(one.getKey(), NewPartitions.increaseTo(one.getValue().asInt())));
        CreatePartitionsOptions options = new CreatePartitionsOptions().validateOnly(q.path("validate_only").asBoolean());
        return each(admin(q).createPartitions(wanted, options).values(), done -> "created");
    }

    private static Object listOffsets(JsonNode q) throws Exception {
        Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
        q.get("specs").fields().forEachRemaining(one -> wanted.put(partition(one.getKey()), spec(one.getValue())));
        IsolationLevel isolation = q.path("committed").asBoolean()
            ? IsolationLevel.READ_COMMITTED : IsolationLevel.READ_UNCOMMITTED;
        ListOffsetsResult result = admin(q).listOffsets(wanted, new ListOffsetsOptions(isolation));
        Map<String, Object> found = new TreeMap<>();
        for (TopicPartition one : wanted.keySet()) {
            found.put(one.toString(), each(result.partitionResult(one), info -> {
                List<Object> made = new ArrayList<>();
                made.add(info.offset());
                made.add(info.timestamp());
                made.add(info.leaderEpoch().orElse(null));
                return made;
            }));
        }
        return found;
    }

    private static OffsetSpec spec(JsonNode wanted) {
        switch (wanted.asText()) {
            case "earliest": return OffsetSpec.earliest();
            case "latest": return OffsetSpec.latest();
            case "max_timestamp": return OffsetSpec.maxTimestamp();
            case "earliest_local": return OffsetSpec.earliestLocal();
            case "latest_tiered": return OffsetSpec.latestTiered();
            case "earliest_pending_upload": return OffsetSpec.earliestPendingUpload();
            default: return OffsetSpec.forTimestamp(wanted.asLong());
        }
    }

    private static Object deleteRecords(JsonNode q) throws Exception {
        Map<TopicPartition, RecordsToDelete> wanted = new HashMap<>();
        q.get("before").fields().forEachRemaining(
            one -> wanted.put(partition(one.getKey()), RecordsToDelete.beforeOffset(one.getValue().asLong())));
        return each(admin(q).deleteRecords(wanted).lowWatermarks(), deleted -> deleted.lowWatermark());
    }

    // -- settings

    private static Object describeConfigs(JsonNode q) throws Exception {
        List<ConfigResource> resources = new ArrayList<>();
        q.get("resources").forEach(one -> resources.add(resource(one)));
        DescribeConfigsOptions options = new DescribeConfigsOptions()
            .includeSynonyms(q.path("synonyms").asBoolean())
            .includeDocumentation(q.path("documentation").asBoolean());
        Map<String, Object> found = new TreeMap<>();
        for (Map.Entry<ConfigResource, ? extends Future<Config>> one :
                admin(q).describeConfigs(resources, options).values().entrySet()) {
            found.put(one.getKey().type() + ":" + one.getKey().name(), each(one.getValue(), ClientDriver::described));
        }
        return found;
    }

    private static Object described(Config config) {
        Map<String, Object> entries = new TreeMap<>();
        for (ConfigEntry entry : config.entries()) {
            List<Object> synonyms = new ArrayList<>();
            entry.synonyms().forEach(one -> synonyms.add(one.source() + ":" + one.name() + "=" + one.value()));
            Map<String, Object> made = new LinkedHashMap<>();
            made.put("value", entry.value());
            made.put("source", entry.source().name());
            made.put("type", entry.type().name());
            made.put("sensitive", entry.isSensitive());
            made.put("readOnly", entry.isReadOnly());
            made.put("synonyms", synonyms);
            made.put("documented", entry.documentation() != null && !entry.documentation().isEmpty());
            entries.put(entry.name(), made);
        }
        return entries;
    }

    private static Object alterConfigs(JsonNode q) throws Exception {
        Map<ConfigResource, Collection<AlterConfigOp>> changes = new HashMap<>();
        for (JsonNode change : q.get("changes")) {
            List<AlterConfigOp> made = new ArrayList<>();
            for (JsonNode op : change.get("ops")) {
                ConfigEntry entry = new ConfigEntry(op.get(1).asText(), text(op.get(2)));
                made.add(new AlterConfigOp(entry, AlterConfigOp.OpType.valueOf(op.get(0).asText())));
            }
            changes.put(resource(change), made);
        }
        Map<String, Object> results = new TreeMap<>();
        for (Map.Entry<ConfigResource, ? extends Future<Void>> one :
                admin(q).incrementalAlterConfigs(changes).values().entrySet()) {
            results.put(one.getKey().type() + ":" + one.getKey().name(), each(one.getValue(), done -> "altered"));
        }
        return results;
    }

    private static Object listConfigResources(JsonNode q) throws Exception {
        Set<ConfigResource.Type> types = EnumSet.noneOf(ConfigResource.Type.class);
        texts(q.get("types")).forEach(one -> types.add(ConfigResource.Type.valueOf(one)));
        List<String> found = new ArrayList<>();
        get(admin(q).listConfigResources(types, new org.apache.kafka.clients.admin.ListConfigResourcesOptions()).all())
            .forEach(one -> found.add(one.type() + ":" + one.name()));
        Collections.sort(found);
        return found;
    }

    // -- the cluster

    private static Object describeCluster(JsonNode q) throws Exception {
        DescribeClusterResult result = admin(q).describeCluster(
            new DescribeClusterOptions().includeAuthorizedOperations(q.path("operations").asBoolean()));
        List<Object> nodes = new ArrayList<>();
        for (Node node : get(result.nodes())) {
            nodes.add(List.of(node.id(), node.host() + ":" + node.port()));
        }
        Node controller = get(result.controller());
        Map<String, Object> made = new LinkedHashMap<>();
        made.put("clusterId", get(result.clusterId()));
        made.put("controller", controller == null ? null : controller.id());
        made.put("nodes", nodes);
        made.put("operations", operations(get(result.authorizedOperations())));
        return made;
    }

    private static Object describeLogDirs(JsonNode q) throws Exception {
        Map<String, Object> brokers = new TreeMap<>();
        for (Map.Entry<Integer, Map<String, LogDirDescription>> broker :
                get(admin(q).describeLogDirs(List.of(q.get("broker").asInt())).allDescriptions()).entrySet()) {
            for (Map.Entry<String, LogDirDescription> dir : broker.getValue().entrySet()) {
                Map<String, Object> replicas = new TreeMap<>();
                for (Map.Entry<TopicPartition, ReplicaInfo> one : dir.getValue().replicaInfos().entrySet()) {
                    ReplicaInfo info = one.getValue();
                    replicas.put(one.getKey().toString(), List.of(info.size(), info.offsetLag(), info.isFuture()));
                }
                Map<String, Object> made = new LinkedHashMap<>();
                made.put("error", dir.getValue().error() == null ? null : dir.getValue().error().getClass().getSimpleName());
                made.put("total", dir.getValue().totalBytes().orElse(-1));
                made.put("usable", dir.getValue().usableBytes().orElse(-1));
                made.put("replicas", replicas);
                brokers.put(dir.getKey(), made);
            }
        }
        return brokers;
    }

    private static Object alterReplicaLogDirs(JsonNode q) throws Exception {
        Map<TopicPartitionReplica, String> wanted = new HashMap<>();
        q.get("dirs").fields().forEachRemaining(one -> {
            TopicPartition partition = partition(one.getKey());
            wanted.put(
                new TopicPartitionReplica(partition.topic(), partition.partition(), q.get("broker").asInt()),
                one.getValue().asText());
        });
        return each(admin(q).alterReplicaLogDirs(wanted).values(), done -> "moving");
    }

    private static Object describeProducers(JsonNode q) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        var result = admin(q).describeProducers(partitions(q.get("partitions")));
        for (TopicPartition one : partitions(q.get("partitions"))) {
            found.put(one.toString(), each(result.partitionResult(one), state -> {
                List<Object> producers = new ArrayList<>();
                for (ProducerState producer : state.activeProducers()) {
                    producers.add(List.of(producer.producerId(), producer.producerEpoch(), producer.lastSequence()));
                }
                return producers;
            }));
        }
        return found;
    }

    private static Object describeFeatures(JsonNode q) throws Exception {
        FeatureMetadata features = get(admin(q).describeFeatures().featureMetadata());
        Map<String, Object> finalized = new TreeMap<>();
        features.finalizedFeatures().forEach((name, range) -> finalized.put(name, (int) range.maxVersionLevel()));
        Map<String, Object> supported = new TreeMap<>();
        features.supportedFeatures()
            .forEach((name, range) -> supported.put(name, List.of((int) range.minVersion(), (int) range.maxVersion())));
        return Map.of(
            "finalized", finalized, "supported", supported, "epoch", features.finalizedFeaturesEpoch().orElse(-1L));
    }

    private static Object updateFeatures(JsonNode q) throws Exception {
        Map<String, FeatureUpdate> wanted = new HashMap<>();
        q.get("levels").fields().forEachRemaining(one -> wanted.put(
            one.getKey(),
            new FeatureUpdate((short) one.getValue().asInt(), FeatureUpdate.UpgradeType.valueOf(q.get("type").asText()))));
        UpdateFeaturesOptions options = new UpdateFeaturesOptions().validateOnly(q.path("validate_only").asBoolean());
        return each(admin(q).updateFeatures(wanted, options).values(), done -> "updated");
    }

    private static Object describeQuorum(JsonNode q) throws Exception {
        QuorumInfo quorum = get(admin(q).describeMetadataQuorum().quorumInfo());
        List<Object> voters = new ArrayList<>();
        for (QuorumInfo.ReplicaState voter : quorum.voters()) {
            voters.add(List.of(voter.replicaId(), voter.replicaDirectoryId().toString(), voter.logEndOffset()));
        }
        Map<String, Object> made = new LinkedHashMap<>();
        made.put("leader", quorum.leaderId());
        made.put("epoch", quorum.leaderEpoch());
        made.put("highWatermark", quorum.highWatermark());
        made.put("voters", voters);
        made.put("observers", quorum.observers().size());
        made.put("nodes", new ArrayList<>(quorum.nodes().keySet()));
        return made;
    }

    private static Object electLeaders(JsonNode q) throws Exception {
        Set<TopicPartition> wanted = q.get("partitions").isNull() ? null : Set.copyOf(partitions(q.get("partitions")));
        Map<String, Object> found = new TreeMap<>();
        get(admin(q).electLeaders(ElectionType.valueOf(q.get("type").asText()), wanted).partitions())
            .forEach((partition, error) ->
                found.put(partition.toString(), error.map(one -> one.getClass().getSimpleName()).orElse("elected")));
        return found;
    }

    private static Object alterReassignments(JsonNode q) throws Exception {
        Map<TopicPartition, Optional<NewPartitionReassignment>> wanted = new HashMap<>();
        q.get("replicas").fields().forEachRemaining(one -> {
            List<Integer> ids = new ArrayList<>();
            one.getValue().forEach(id -> ids.add(id.asInt()));
            wanted.put(
                partition(one.getKey()),
                one.getValue().isNull() ? Optional.empty() : Optional.of(new NewPartitionReassignment(ids)));
        });
        return each(admin(q).alterPartitionReassignments(wanted).values(), done -> "reassigned");
    }

    private static Object listReassignments(JsonNode q) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (Map.Entry<TopicPartition, PartitionReassignment> one :
                get(admin(q).listPartitionReassignments().reassignments()).entrySet()) {
            found.put(one.getKey().toString(), one.getValue().replicas());
        }
        return found;
    }

    // -- quotas and ACLs

    private static ClientQuotaEntity entity(JsonNode node) {
        Map<String, String> parts = new HashMap<>();
        node.fields().forEachRemaining(one -> parts.put(one.getKey(), text(one.getValue())));
        return new ClientQuotaEntity(parts);
    }

    private static Object alterQuotas(JsonNode q) throws Exception {
        List<ClientQuotaAlteration> wanted = new ArrayList<>();
        for (JsonNode change : q.get("changes")) {
            List<ClientQuotaAlteration.Op> ops = new ArrayList<>();
            change.get("ops").fields().forEachRemaining(one -> ops.add(new ClientQuotaAlteration.Op(
                one.getKey(), one.getValue().isNull() ? null : Double.valueOf(one.getValue().asDouble()))));
            wanted.add(new ClientQuotaAlteration(entity(change.get("entity")), ops));
        }
        List<Object> results = new ArrayList<>();
        var futures = admin(q).alterClientQuotas(wanted).values();
        for (ClientQuotaAlteration one : wanted) {
            results.add(each(futures.get(one.entity()), done -> "altered"));
        }
        return results;
    }

    private static Object describeQuotas(JsonNode q) throws Exception {
        List<Object> found = new ArrayList<>();
        get(admin(q).describeClientQuotas(ClientQuotaFilter.all()).entities())
            .forEach((entity, values) -> found.add(List.of(new TreeMap<>(entity.entries()), new TreeMap<>(values))));
        return found;
    }

    private static Object createAcls(JsonNode q) throws Exception {
        List<AclBinding> wanted = new ArrayList<>();
        for (JsonNode acl : q.get("acls")) {
            wanted.add(new AclBinding(
                new ResourcePattern(
                    ResourceType.valueOf(acl.get("type").asText()), acl.get("name").asText(), PatternType.LITERAL),
                new AccessControlEntry(
                    acl.get("principal").asText(), "*", AclOperation.valueOf(acl.get("operation").asText()),
                    AclPermissionType.ALLOW)));
        }
        return new ArrayList<>(each(admin(q).createAcls(wanted).values(), done -> "created").values());
    }

    private static String described(AclBinding acl) {
        return acl.pattern().resourceType() + " " + acl.pattern().name() + " " + acl.entry().principal() + " "
            + acl.entry().permissionType() + " " + acl.entry().operation();
    }

    private static Object describeAcls(JsonNode q) throws Exception {
        List<String> found = new ArrayList<>();
        get(admin(q).describeAcls(AclBindingFilter.ANY).values()).forEach(one -> found.add(described(one)));
        Collections.sort(found);
        return found;
    }

    private static Object deleteAcls(JsonNode q) throws Exception {
        List<String> deleted = new ArrayList<>();
        for (Future<DeleteAclsResult.FilterResults> one :
                admin(q).deleteAcls(List.of(AclBindingFilter.ANY)).values().values()) {
            get(one).values().forEach(result -> deleted.add(described(result.binding())));
        }
        Collections.sort(deleted);
        return deleted;
    }

    // -- groups and credentials

    private static Object commitGroupOffsets(JsonNode q) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        q.get("offsets").fields().forEachRemaining(
            one -> offsets.put(partition(one.getKey()), new OffsetAndMetadata(one.getValue().asLong())));
        return get(admin(q).alterConsumerGroupOffsets(q.get("group").asText(), offsets).all());
    }

    private static Object groupOffsets(JsonNode q) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        get(admin(q).listConsumerGroupOffsets(q.get("group").asText()).partitionsToOffsetAndMetadata())
            .forEach((partition, offset) -> found.put(partition.toString(), offset.offset()));
        return found;
    }

    private static Object addScram(JsonNode q) throws Exception {
        ScramCredentialInfo info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
        return get(admin(q).alterUserScramCredentials(
            List.of(new UserScramCredentialUpsertion(q.get("user").asText(), info, "a secret"))).all());
    }

    private static Object describeScram(JsonNode q) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        get(admin(q).describeUserScramCredentials().all()).forEach((user, described) ->
            found.put(user, described.credentialInfos().get(0).mechanism().mechanismName()));
        return found;
    }
}
