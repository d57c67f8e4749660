import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.config.ConfigDef;

/**
 * What Kafka's own producer makes of keys and settings, for tests/unit/clients/producer.
 *
 * <p>{"op": "partitions", "keys": [base64...], "count": n} gives the partition of each key; {"op": "config"} gives all
 * settings of a producer with their types, defaults and bounds.
 */
public final class ProducerOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    private ProducerOracle() {
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            output.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            output.flush();
        }
    }

    private static JsonNode answer(JsonNode question) {
        ObjectNode answer = JSON.createObjectNode();
        if (question.get("op").asText().equals("partitions")) {
            ArrayNode partitions = answer.putArray("partitions");
            int count = question.get("count").asInt();
            for (JsonNode key : question.get("keys")) {
                partitions.add(BuiltInPartitioner.partitionForKey(Base64.getDecoder().decode(key.asText()), count));
            }
            return answer;
        }
        for (Map.Entry<String, ConfigDef.ConfigKey> entry
                : new TreeMap<>(ProducerConfig.configDef().configKeys()).entrySet()) {
            ConfigDef.ConfigKey key = entry.getValue();
            ObjectNode row = answer.putObject(key.name);
            row.put("type", key.type.name());
            row.put("default", key.hasDefault() ? String.valueOf(key.defaultValue) : "NONE GIVEN");
            row.put("validator", key.validator == null ? "" : key.validator.toString());
            row.put("importance", key.importance.name());
            row.put("internal", key.internalConfig);
        }
        return answer;
    }
}
