import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.TopicImage;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Apache Kafka's controller classes as an oracle: one question a line on standard input, one answer a line on standard
 * output, both in JSON. Asked for a "change", it says what Kafka's builder makes of an intention; asked for an "image",
 * what Kafka makes of the records of a metadata log.
 */
public final class ControllerOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode question = JSON.readTree(line);
            out.println(question.has("log") ? image(question) : change(question));
        }
    }

    private static int[] numbers(JsonNode list) {
        int[] found = new int[list.size()];
        Arrays.setAll(found, i -> list.get(i).asInt());
        return found;
    }

    private static List<Integer> list(JsonNode list) {
        return Arrays.stream(numbers(list)).boxed().toList();
    }

    private static Uuid directory(int broker, int number) {
        return new Uuid(0xD100L | number, broker);
    }

    private static ObjectNode change(JsonNode q) {
        int[] replicas = numbers(q.get("replicas"));
        Uuid[] directories = Arrays.stream(replicas).mapToObj(id -> directory(id, 0)).toArray(Uuid[]::new);
        PartitionRegistration partition = new PartitionRegistration.Builder().
            setReplicas(replicas).
            setDirectories(directories).
            setIsr(numbers(q.get("isr"))).
            setElr(numbers(q.get("elr"))).
            setLastKnownElr(numbers(q.get("last_known_elr"))).
            setAddingReplicas(numbers(q.get("adding"))).
            setRemovingReplicas(numbers(q.get("removing"))).
            setLeader(q.get("leader").asInt()).
            setLeaderRecoveryState(LeaderRecoveryState.of((byte) q.get("recovery").asInt())).
            setLeaderEpoch(3).
            setPartitionEpoch(7).
            build();
        List<Integer> alive = list(q.get("alive"));
        PartitionChangeBuilder builder = new PartitionChangeBuilder(partition, Uuid.ONE_UUID, 0, alive::contains,
            MetadataVersion.fromFeatureLevel((short) q.get("version").asInt()), q.get("min_isr").asInt(),
            q.get("elr_enabled").asBoolean());
        builder.setTargetIsr(list(q.get("target_isr"))).
            setTargetReplicas(list(q.get("target_replicas"))).
            setTargetAdding(list(q.get("target_adding"))).
            setTargetRemoving(list(q.get("target_removing"))).
            setTargetLeaderRecoveryState(LeaderRecoveryState.of((byte) q.get("target_recovery").asInt())).
            setElection(PartitionChangeBuilder.Election.valueOf(q.get("election").asText())).
            setUncleanShutdownReplicas(list(q.get("unclean_shutdown"))).
            setDefaultDirProvider(id -> directory(id, 5));
        Optional<ApiMessageAndVersion> built = builder.build();
        ObjectNode answer = JSON.createObjectNode();
        if (built.isEmpty()) {
            return answer;
        }
        PartitionChangeRecord record = (PartitionChangeRecord) built.get().message();
        answer.put("version", built.get().version());
        answer.put("leader", record.leader());
        answer.put("leader_recovery_state", record.leaderRecoveryState());
        answer.set("isr", JSON.valueToTree(record.isr()));
        answer.set("replicas", JSON.valueToTree(record.replicas()));
        answer.set("removing_replicas", JSON.valueToTree(record.removingReplicas()));
        answer.set("adding_replicas", JSON.valueToTree(record.addingReplicas()));
        answer.set("eligible_leader_replicas", JSON.valueToTree(record.eligibleLeaderReplicas()));
        answer.set("last_known_elr", JSON.valueToTree(record.lastKnownElr()));
        answer.set("directories", record.directories() == null ? JSON.nullNode() :
            JSON.valueToTree(record.directories().stream().map(Uuid::toString).toList()));
        return answer;
    }

    private static ObjectNode image(JsonNode question) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        for (JsonNode hex : question.get("log")) {
            byte[] bytes = HexFormat.of().parseHex(hex.asText());
            ByteBufferAccessor readable = new ByteBufferAccessor(ByteBuffer.wrap(bytes));
            ApiMessageAndVersion record = MetadataRecordSerde.INSTANCE.read(readable, bytes.length);
            MetadataRecordType type = MetadataRecordType.fromId(record.message().apiKey());
            if (type != MetadataRecordType.BEGIN_TRANSACTION_RECORD && type != MetadataRecordType.END_TRANSACTION_RECORD) {
                delta.replay(record.message());
            }
        }
        MetadataImage image = delta.apply(new MetadataProvenance(0, 1, 0, true));
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode partitions = answer.putArray("partitions");
        for (TopicImage topic : new TreeMap<>(image.topics().topicsByName()).values()) {
            for (Map.Entry<Integer, PartitionRegistration> entry : new TreeMap<>(topic.partitions()).entrySet()) {
                PartitionRegistration p = entry.getValue();
                ArrayNode row = partitions.addArray().add(topic.name()).add(topic.id().toString()).add(entry.getKey());
                for (int[] each : List.of(p.replicas, p.isr, p.removingReplicas, p.addingReplicas, p.elr, p.lastKnownElr)) {
                    row.add(JSON.valueToTree(each));
                }
                row.add(p.leader).add(p.leaderRecoveryState.value()).add(p.leaderEpoch).add(p.partitionEpoch);
                row.add(JSON.valueToTree(Arrays.stream(p.directories).map(Uuid::toString).toList()));
            }
        }
        ArrayNode brokers = answer.putArray("brokers");
        for (BrokerRegistration broker : new TreeMap<>(image.cluster().brokers()).values()) {
            brokers.addArray().add(broker.id()).add(broker.epoch()).add(broker.fenced()).
                add(broker.inControlledShutdown()).
                add(JSON.valueToTree(broker.directories().stream().map(Uuid::toString).toList()));
        }
        answer.set("features", JSON.valueToTree(image.features().finalizedVersions()));
        answer.put("metadata_version", image.features().metadataVersionOrThrow().featureLevel());
        answer.put("producer_ids", image.producerIds().nextProducerId());
        answer.put("acls", image.acls().acls().size());
        return answer;
    }
}
