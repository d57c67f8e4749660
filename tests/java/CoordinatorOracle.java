import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * What Kafka's group coordinator makes of a group, and RE2/J of a pattern.
 *
 * Questions and answers are lines of JSON:
 *   {"op": "assign", "assignor": "range" or "uniform", "topics": {id: partitions}, "members": [{"id", "instance", "topics": [id],
 *    "assignment": {id: [partition]}}]}  ->  {"result": {member: {id: [partition]}}}
 *   {"op": "matches", "pattern": ..., "texts": [...]}  ->  {"result": [true, ...]}, null for a pattern that is refused
 */
public class CoordinatorOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                JsonNode question = JSON.readTree(line);
                boolean isPattern = question.get("op").asText().equals("matches");
                answer.put("result", isPattern ? matches(question) : assign(question));
            } catch (RuntimeException failure) {
                answer.put("error", failure.getClass().getSimpleName());
                answer.put("message", String.valueOf(failure.getMessage()));
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    private static List<Boolean> matches(JsonNode question) {
        Pattern pattern;
        try {
            pattern = Pattern.compile(question.get("pattern").asText());
        } catch (PatternSyntaxException refused) {
            return null;
        }
        List<Boolean> result = new ArrayList<>();
        for (JsonNode text : question.get("texts"))
            result.add(pattern.matcher(text.asText()).matches());
        return result;
    }

    private static Map<String, Map<String, Set<Integer>>> assign(JsonNode question) {
        Map<Uuid, Integer> sizes = new HashMap<>();
        question.get("topics").properties().forEach(one -> sizes.put(Uuid.fromString(one.getKey()), one.getValue().asInt()));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new LinkedHashSet<>();
        for (JsonNode member : question.get("members")) {
            String id = member.get("id").asText();
            Set<Uuid> subscribed = new LinkedHashSet<>();
            member.get("topics").forEach(one -> subscribed.add(Uuid.fromString(one.asText())));
            subscriptions.add(subscribed);
            Map<Uuid, Set<Integer>> assignment = new LinkedHashMap<>();
            member.get("assignment").properties().forEach(one -> {
                Uuid topic = Uuid.fromString(one.getKey());
                Set<Integer> partitions = new LinkedHashSet<>();
                one.getValue().forEach(number -> partitions.add(number.asInt()));
                assignment.put(topic, partitions);
                partitions.forEach(number -> owners.computeIfAbsent(topic, any -> new HashMap<>()).put(number, id));
            });
            members.put(id, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), Optional.ofNullable(member.get("instance").textValue()), subscribed, new Assignment(assignment)));
        }
        ConsumerGroupPartitionAssignor assignor =
            question.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
        SubscriptionType type = subscriptions.size() > 1 ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS;
        GroupAssignment made = assignor.assign(new GroupSpecImpl(members, type, owners), new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return sizes.getOrDefault(topic, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        });
        Map<String, Map<String, Set<Integer>>> result = new TreeMap<>();
        made.members().forEach((member, assignment) -> {
            Map<String, Set<Integer>> topics = new TreeMap<>();
            assignment.partitions().forEach((topic, partitions) -> {
                if (!partitions.isEmpty())
                    topics.put(topic.toString(), new TreeSet<>(partitions));
            });
            result.put(member, topics);
        });
        return result;
    }
}
