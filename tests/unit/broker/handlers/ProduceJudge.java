// What Apache Kafka makes of the records of a produce request: the checks of the request, then an append to a real log.
//
// Each line of the input is a topic, the version of the request and the records in base64; each line of the output is
// the name of an error code. The arguments are a directory for the logs, and for each topic its name and the setting
// that it has ("name" or "name:key=value").

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationException;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class ProduceJudge {
    public static void main(String[] args) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        Map<String, UnifiedLog> logs = new HashMap<>();
        for (int i = 1; i < args.length; i++) {
            String[] topic = args[i].split(":", 2);
            Map<String, String> settings = new HashMap<>();
            if (topic.length == 2)
                settings.put(topic[1].split("=")[0], topic[1].split("=")[1]);
            File directory = new File(args[0], topic[0] + "-0");
            directory.mkdirs();
            logs.put(topic[0], UnifiedLog.create(directory, new LogConfig(settings), 0, 0, scheduler,
                new BrokerTopicStats(), Time.SYSTEM, 3_600_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
                new LogDirFailureChannel(1), true, Optional.of(Uuid.randomUuid())));
        }
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] question = line.split(" ", 3);
            byte[] records = Base64.getDecoder().decode(question[2]);
            System.out.println(judge(logs.get(question[0]), Short.parseShort(question[1]), records));
        }
        System.exit(0);
    }

    private static Errors judge(UnifiedLog log, short version, byte[] bytes) {
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
            for (RecordBatch batch : records.batches())
                if (batch.isTransactional())
                    return Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
            ProduceRequest.validateRecords(version, records);
            log.appendAsLeader(records, 0, AppendOrigin.CLIENT, RequestLocal.noCaching(), VerificationGuard.SENTINEL,
                (short) 0);
            return Errors.NONE;
        } catch (RecordValidationException error) {
            return Errors.forException(error.invalidException());
        } catch (Throwable error) {  // codecs also throw Errors
            return Errors.forException(error);
        }
    }
}
