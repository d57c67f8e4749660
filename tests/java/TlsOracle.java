import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;

import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * What Java and Kafka make of certificates and mapping rules.
 *
 * Questions and answers are lines of JSON:
 *   {"op": "subject", "certificate": base64 of DER}  ->  {"result": name in RFC 2253}
 *   {"op": "map", "rules": ..., "name": ...}  ->  {"result": mapped name}
 *   {"op": "ask", "port": ..., "keystore": file, "truststore": file, "password": ..., "version": ..., "size": bytes}
 *       ->  {"result": "version cipher"}, after a frame of that size was sent and came back
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
                switch (question.get("op").asText()) {
                    case "subject" -> answer.put("result", subject(question));
                    case "map" -> answer.put("result", map(question));
                    default -> answer.put("result", ask(question));
                }
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

    private static String ask(JsonNode question) throws Exception {
        char[] password = question.get("password").asText().toCharArray();
        KeyManagerFactory keys = KeyManagerFactory.getInstance("SunX509");
        keys.init(KeyStore.getInstance(new File(question.get("keystore").asText()), password), password);
        TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
        trust.init(KeyStore.getInstance(new File(question.get("truststore").asText()), password));
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        byte[] payload = new byte[question.get("size").asInt()];
        try (SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket("localhost", question.get("port").asInt())) {
            SSLParameters parameters = socket.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            parameters.setProtocols(new String[] {question.get("version").asText()});
            socket.setSSLParameters(parameters);
            socket.setSoTimeout(60_000);
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
            DataInputStream in = new DataInputStream(socket.getInputStream());
            out.writeInt(payload.length);
            out.write(payload);
            out.flush();
            if (in.readInt() != payload.length || in.readNBytes(payload.length).length != payload.length) {
                throw new IllegalStateException("another answer than the question");
            }
            return socket.getSession().getProtocol() + " " + socket.getSession().getCipherSuite();
        }
    }

    private static String map(JsonNode question) throws Exception {
        return new SslPrincipalMapper(question.get("rules").asText()).getName(question.get("name").asText());
    }
}
