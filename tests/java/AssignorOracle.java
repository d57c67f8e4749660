import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own assignors, for tests/unit/clients/consumer.
 *
 * <p>{"op": "assign", "assignor": name, "topics": {topic: [[rack...]...]}, "members": {id: {"topics": [...], "owned":
 * [[topic, number]...], "generation": n or null, "rack": text or null, "instance": text or null, "user_data": base64 or
 * null}}} gives {member: [[topic, number]...]}. {"op": "user_data", "assignor": name, "partitions": [...], "generation":
 * n} gives what a member's assignor tells the leader's. {"op": "subscription", ...a member...} gives the bytes of a
 * subscription, {"op": "assignment", "partitions": [...]} those of an assignment.
 */
public final class AssignorOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    private AssignorOracle() {
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            output.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            output.flush();
        }
    }

    private static JsonNode answer(JsonNode question) {
        ObjectNode answer = JSON.createObjectNode();
        switch (question.get("op").asText()) {
            case "assign":
                return assign(question);
            case "user_data":
                ConsumerPartitionAssignor assignor = assignor(question.get("assignor").asText());
                assignor.onAssignment(
                    new ConsumerPartitionAssignor.Assignment(partitions(question.get("partitions"))),
                    new ConsumerGroupMetadata("group", question.get("generation").asInt(), "member", Optional.empty()));
                return answer.put("bytes", encoded(assignor.subscriptionUserData(new HashSet<>())));
            case "subscription":
                return answer.put("bytes", encoded(ConsumerProtocol.serializeSubscription(subscription(question))));
            default:
                return answer.put("bytes", encoded(ConsumerProtocol.serializeAssignment(
                    new ConsumerPartitionAssignor.Assignment(partitions(question.get("partitions"))))));
        }
    }

    private static JsonNode assign(JsonNode question) {
        Map<String, Node> racks = new LinkedHashMap<>();
        List<PartitionInfo> infos = new ArrayList<>();
        question.get("topics").fields().forEachRemaining(topic -> {
            int number = 0;
            for (JsonNode partition : topic.getValue()) {
                List<Node> replicas = new ArrayList<>();
                for (JsonNode rack : partition) {
                    replicas.add(racks.computeIfAbsent(
                        rack.asText(), name -> new Node(racks.size(), "host", 9092, name)));
                }
                Node[] nodes = replicas.toArray(new Node[0]);
                infos.add(new PartitionInfo(topic.getKey(), number++, null, nodes, nodes));
            }
        });
        Map<String, ConsumerPartitionAssignor.Subscription> members = new LinkedHashMap<>();
        question.get("members").fields().forEachRemaining(
            member -> members.put(member.getKey(), subscription(member.getValue())));
        Set<String> none = Collections.emptySet();
        Cluster cluster = new Cluster("cluster", new ArrayList<>(racks.values()), infos, none, none);
        Map<String, ConsumerPartitionAssignor.Assignment> assignment = assignor(question.get("assignor").asText())
            .assign(cluster, new ConsumerPartitionAssignor.GroupSubscription(members)).groupAssignment();
        ObjectNode answer = JSON.createObjectNode();
        assignment.forEach((member, assigned) -> {
            ArrayNode rows = answer.putArray(member);
            assigned.partitions().forEach(one -> rows.addArray().add(one.topic()).add(one.partition()));
        });
        return answer;
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range":
                return new RangeAssignor();
            case "roundrobin":
                return new RoundRobinAssignor();
            case "sticky":
                return new StickyAssignor();
            default:
                return new CooperativeStickyAssignor();
        }
    }

    private static ConsumerPartitionAssignor.Subscription subscription(JsonNode member) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(topic -> topics.add(topic.asText()));
        ByteBuffer userData = member.get("user_data").isNull()
            ? null : ByteBuffer.wrap(Base64.getDecoder().decode(member.get("user_data").asText()));
        int generation = member.get("generation").isNull() ? -1 : member.get("generation").asInt();
        ConsumerPartitionAssignor.Subscription made = new ConsumerPartitionAssignor.Subscription(
            topics, userData, partitions(member.get("owned")), generation, text(member.get("rack")));
        made.setGroupInstanceId(text(member.get("instance")));
        return made;
    }

    private static Optional<String> text(JsonNode node) {
        return node.isNull() ? Optional.empty() : Optional.of(node.asText());
    }

    private static List<TopicPartition> partitions(JsonNode rows) {
        List<TopicPartition> made = new ArrayList<>();
        rows.forEach(row -> made.add(new TopicPartition(row.get(0).asText(), row.get(1).asInt())));
        return made;
    }

    private static String encoded(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }
}
