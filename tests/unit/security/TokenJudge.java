import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Scanner;
import javax.crypto.spec.SecretKeySpec;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.security.DelegationTokenManager;

/** Computes what Kafka computes for a delegation token: key, token id, mechanism, salt and iterations, by tabs. */
public class TokenJudge {
    public static void main(String[] args) throws Exception {
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        Base64.Encoder base64 = Base64.getEncoder();
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split("\t", -1);
            SecretKeySpec key = new SecretKeySpec(words[0].getBytes(StandardCharsets.UTF_8), "HmacSHA512");
            byte[] hmac = DelegationTokenManager.createHmac(words[1], key);
            ScramFormatter formatter = new ScramFormatter(ScramMechanism.forMechanismName(words[2]));
            byte[] password = ScramFormatter.normalize(base64.encodeToString(hmac));
            byte[] salt = Base64.getDecoder().decode(words[3]);
            byte[] salted = formatter.hi(password, salt, Integer.parseInt(words[4]));
            System.out.println(String.join("\t",
                base64.encodeToString(hmac),
                base64.encodeToString(formatter.storedKey(formatter.clientKey(salted))),
                base64.encodeToString(formatter.serverKey(salted))));
        }
    }
}
