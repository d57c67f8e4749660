/** Prints what Apache Kafka knows about the settings of a broker, groups, metrics subscriptions and clients, as JSON. */

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

public class ConfigOracle {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> answer = new TreeMap<>();
        answer.put("broker", keys(AbstractKafkaConfig.CONFIG_DEF));
        answer.put("dynamic_broker", keys(DynamicConfig.Broker.configKeys()));
        answer.put("group", keys(GroupConfig.CONFIG_DEF));
        answer.put("client_metrics", keys(ClientMetricsConfigs.configDef()));
        answer.put("topic", keys(LogConfig.configDefCopy()));
        answer.put("producer", keys(ProducerConfig.configDef()));
        answer.put("consumer", keys(ConsumerConfig.configDef()));
        answer.put("admin", keys(AdminClientConfig.configDef()));
        answer.put("update_modes", new TreeMap<>(DynamicBrokerConfig.dynamicConfigUpdateModes()));
        Map<String, Object> synonyms = new TreeMap<>();
        for (String name : AbstractKafkaConfig.CONFIG_DEF.names()) {
            synonyms.put(name, DynamicBrokerConfig.brokerConfigSynonyms(name, true));
        }
        synonyms.put("listener.name.x.max.connections",
            DynamicBrokerConfig.brokerConfigSynonyms("listener.name.x.max.connections", true));
        synonyms.put("listener.name.x.plain.sasl.jaas.config",
            DynamicBrokerConfig.brokerConfigSynonyms("listener.name.x.plain.sasl.jaas.config", true));
        answer.put("synonyms", synonyms);
        Map<String, Object> groupSynonyms = new TreeMap<>();
        GroupConfig.ALL_GROUP_CONFIG_SYNONYMS.forEach((name, synonym) -> groupSynonyms.put(name, synonym.orElse(null)));
        answer.put("group_synonyms", groupSynonyms);
        answer.put("validations", validations());
        System.out.println(new ObjectMapper().writeValueAsString(answer));
    }

    private static Map<String, Object> keys(ConfigDef def) {
        return keys(def.configKeys());
    }

    private static Map<String, Object> keys(Map<String, ConfigDef.ConfigKey> definitions) {
        Map<String, Object> result = new TreeMap<>();
        definitions.forEach((name, key) -> {
            Map<String, Object> entry = new TreeMap<>();
            entry.put("type", key.type.name());
            entry.put("has_default", key.hasDefault());
            entry.put("default", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
            entry.put("validator", key.validator == null ? null : key.validator.toString());
            entry.put("importance", key.importance.name());
            entry.put("internal", key.internalConfig);
            entry.put("documented", key.documentation != null && !key.documentation.isEmpty());
            if (key.type == ConfigDef.Type.LIST) {
                entry.put("accepts_empty", accepts(key, List.of()));
                entry.put("accepts_null", accepts(key, null));
                entry.put("accepts_blank", accepts(key, List.of("")));
            }
            result.put(name, entry);
        });
        return result;
    }

    private static boolean accepts(ConfigDef.ConfigKey key, Object value) {
        try {
            if (key.validator != null) {
                key.validator.ensureValid(key.name, value);
            }
            return true;
        } catch (RuntimeException e) {
            return false;
        }
    }

    /** Whether Kafka lets these be set, for one broker and for all of them. */
    private static List<Object> validations() {
        String[][] proposals = {
            {"num.io.threads", "4"}, {"num.io.threads", "0"}, {"num.io.threads", "many"}, {"log.dirs", "/a"},
            {"node.id", "3"}, {"max.connections.per.ip", "7"}, {"listeners", "PLAINTEXT://:1"},
            {"listener.name.internal.max.connections", "9"}, {"listener.name.internal.num.network.threads", "2"},
            {"listener.name.internal.log.retention.ms", "9"}, {"ssl.keystore.location", "/k"},
            {"listener.name.internal.ssl.keystore.location", "/k"}, {"my.plugin.colour", "red"},
            {"leader.replication.throttled.rate", "5"}, {"leader.replication.throttled.rate", "-1"},
            {"log.retention.ms", "-1"}, {"log.retention.hours", "3"}, {"log.cleaner.threads", "-3"},
            {"message.max.bytes", "-3"}, {"min.insync.replicas", "0"}, {"advertised.listeners", "PLAINTEXT://h:1"},
            {"unclean.leader.election.enable", "maybe"}, {"max.connections.per.ip.overrides", "h:x"},
            {"listener.name.internal.max.connections", "x"}, {"auto.create.topics.enable", "false"},
        };
        List<Object> results = new ArrayList<>();
        for (String[] proposal : proposals) {
            for (boolean perBroker : new boolean[] {true, false}) {
                Properties properties = new Properties();
                properties.put(proposal[0], proposal[1]);
                String problem = null;
                try {
                    DynamicBrokerConfig.validateConfigs(properties, perBroker);
                } catch (Exception e) {
                    problem = e.getClass().getSimpleName() + ": " + e.getMessage();
                }
                Map<String, Object> result = new TreeMap<>();
                result.put("name", proposal[0]);
                result.put("value", proposal[1]);
                result.put("per_broker", perBroker);
                result.put("error", problem);
                results.add(result);
            }
        }
        return results;
    }
}
