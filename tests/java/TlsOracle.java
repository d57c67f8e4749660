import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;

import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * What Java and Kafka make of certificates and mapping rules.
 *
 * Questions and answers are lines of JSON:
 *   {"op": "subject", "certificate": base64 of DER}  ->  {"result": name in RFC 2253}
 *   {"op": "map", "rules": ..., "name": ...}  ->  {"result": mapped name}
 */
public class TlsOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                JsonNode question = JSON.readTree(line);
                boolean isSubject = question.get("op").asText().equals("subject");
                answer.put("result", isSubject ? subject(question) : map(question));
            } catch (Exception failure) {
                answer.put("error", failure.getClass().getSimpleName());
                answer.put("message", String.valueOf(failure.getMessage()));
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    private static String subject(JsonNode question) throws Exception {
        byte[] der = Base64.getDecoder().decode(question.get("certificate").asText());
        X509Certificate certificate = (X509Certificate) CertificateFactory.getInstance("X.509")
            .generateCertificate(new ByteArrayInputStream(der));
        return certificate.getSubjectX500Principal().getName();
    }

    private static String map(JsonNode question) throws Exception {
        return new SslPrincipalMapper(question.get("rules").asText()).getName(question.get("name").asText());
    }
}
