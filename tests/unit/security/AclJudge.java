import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.*;

/**
 * Kafka's own authorizer, driven by a script on standard input: one command a line, its words separated by tabs.
 * A question is answered with one line.
 */
public class AclJudge {
    public static void main(String[] arguments) throws Exception {
        BufferedReader script = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder answers = new StringBuilder();
        StandardAuthorizer authorizer = null;
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        for (String line = script.readLine(); line != null; line = script.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "acl":  // resource type, name, pattern type, principal, host, operation, permission
                    acls.put(Uuid.randomUuid(), StandardAcl.fromAclBinding(new AclBinding(
                        new ResourcePattern(ResourceType.valueOf(words[1]), words[2], PatternType.valueOf(words[3])),
                        new AccessControlEntry(words[4], words[5], AclOperation.valueOf(words[6]),
                            AclPermissionType.valueOf(words[7])))));
                    break;
                case "load":  // super users, the default
                    authorizer = new StandardAuthorizer();
                    authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                    authorizer.configure(Map.of("super.users", words[1], "allow.everyone.if.no.acl.found", words[2]));
                    authorizer.loadSnapshot(acls);
                    authorizer.completeInitialLoad();
                    acls = new HashMap<>();
                    break;
                case "ask":  // principal, host, operation, resource type, name
                    answers.append(authorizer.authorize(context(words[1], words[2]), List.of(new Action(
                        AclOperation.valueOf(words[3]),
                        new ResourcePattern(ResourceType.valueOf(words[4]), words[5], PatternType.LITERAL),
                        1, true, true))).get(0)).append('\n');
                    break;
                case "type":  // principal, host, operation, resource type
                    answers.append(authorizer.authorizeByResourceType(context(words[1], words[2]),
                        AclOperation.valueOf(words[3]), ResourceType.valueOf(words[4]))).append('\n');
                    break;
                case "principal":  // type, name, whether it came with a token
                    answers.append(HexFormat.of().formatHex(new DefaultKafkaPrincipalBuilder(null, null).serialize(
                        new KafkaPrincipal(words[1], words[2], Boolean.parseBoolean(words[3]))))).append('\n');
                    break;
                case "filter":  // a filter of patterns, then a pattern: resource type, name, pattern type of each
                    answers.append(new ResourcePatternFilter(ResourceType.valueOf(words[1]),
                        words[2].isEmpty() ? null : words[2], PatternType.valueOf(words[3])).matches(
                        new ResourcePattern(ResourceType.valueOf(words[4]), words[5], PatternType.valueOf(words[6]))))
                        .append('\n');
                    break;
                case "codes":
                    for (AclOperation operation : AclOperation.values())
                        answers.append(operation).append('=').append(operation.code()).append(' ');
                    for (AclPermissionType permission : AclPermissionType.values())
                        answers.append(permission).append('=').append(permission.code()).append(' ');
                    for (ResourceType type : ResourceType.values())
                        answers.append(type).append('=').append(type.code()).append(' ');
                    for (PatternType type : PatternType.values())
                        answers.append(type).append('=').append(type.code()).append(' ');
                    answers.append('\n');
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        System.out.print(answers);
    }

    static AuthorizableRequestContext context(String principal, String host) throws Exception {
        String[] parts = principal.split(":", 2);
        KafkaPrincipal parsed = new KafkaPrincipal(parts[0], parts[1]);
        InetAddress address = InetAddress.getByName(host);
        return new AuthorizableRequestContext() {
            public String listenerName() { return "PLAINTEXT"; }
            public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
            public KafkaPrincipal principal() { return parsed; }
            public InetAddress clientAddress() { return address; }
            public int requestType() { return 1; }
            public int requestVersion() { return 13; }
            public String clientId() { return "client"; }
            public int correlationId() { return 1; }
        };
    }
}
