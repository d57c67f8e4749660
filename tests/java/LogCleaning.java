import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;

import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Apache Kafka's cleaner at work on the directory of a log.
 *
 * A question is a line of JSON on the standard input, its answer a line of JSON on the standard output. "clean" cleans a
 * log from "firstDirty" up to "uncleanable" as of the time "now"; "read" goes through all its batches and records, with
 * their checksums verified. An answer with "error" says that Java threw.
 */
public class LogCleaning {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer(JSON.readTree(line), answer);
            } catch (Throwable error) {
                answer.put("error", error.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    private static void answer(JsonNode question, ObjectNode answer) throws Exception {
        Time time = new StandingTime(question.get("now").asLong());
        Properties properties = new Properties();
        question.get("config").fields().forEachRemaining(each -> properties.put(each.getKey(), each.getValue().asText()));
        UnifiedLog log = UnifiedLog.create(
            new File(question.get("dir").asText()),
            new LogConfig(properties),
            0L,
            0L,
            new NoScheduler(),
            new BrokerTopicStats(false),
            time,
            15 * 60 * 1000,
            new ProducerStateManagerConfig(86400000, false),
            600000,
            new LogDirFailureChannel(1),
            true,
            Optional.empty());
        try {
            log.updateHighWatermark(log.logEndOffset());
            switch (question.get("op").asText()) {
                case "clean":
                    clean(log, question, answer, time);
                    break;
                case "read":
                    read(log, answer);
                    break;
                default:
                    throw new IllegalArgumentException("no operation " + question.get("op"));
            }
        } finally {
            log.close();
        }
    }

    private static void clean(UnifiedLog log, JsonNode question, ObjectNode answer, Time time) throws Exception {
        Cleaner cleaner = new Cleaner(
            0,
            new SkimpyOffsetMap(question.get("memory").asInt()),
            question.get("ioBuffer").asInt(),
            1 << 20,
            0.9,
            new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", time),
            time,
            partition -> { });
        LogToClean cleanable = new LogToClean(
            log, question.get("firstDirty").asLong(), question.get("uncleanable").asLong(), false);
        Map.Entry<Long, CleanerStats> result = cleaner.doClean(cleanable, time.milliseconds());
        answer.put("end", result.getKey());
        answer.put("firstUncleanable", cleanable.firstUncleanableOffset());
        answer.put("cleanBytes", cleanable.cleanBytes());
        answer.put("cleanableBytes", cleanable.cleanableBytes());
        answer.put("messagesWritten", result.getValue().messagesWritten());
        answer.put("invalidMessages", result.getValue().invalidMessagesRead());
        ArrayNode segments = answer.putArray("segments");
        for (LogSegment segment : log.logSegments())
            segments.add(segment.baseOffset());
    }

    private static void read(UnifiedLog log, ObjectNode answer) throws Exception {
        int batches = 0;
        int records = 0;
        for (LogSegment segment : log.logSegments()) {
            segment.sanityCheck(false);
            segment.offsetIndex().sanityCheck();
            segment.timeIndex().sanityCheck();
            for (RecordBatch batch : segment.log().batches()) {
                batch.ensureValid();
                batches++;
                for (Record record : batch) {
                    record.ensureValid();
                    records++;
                }
            }
        }
        answer.put("batches", batches);
        answer.put("records", records);
        answer.put("end", log.logEndOffset());
        answer.put("lastStable", log.lastStableOffset());
        ArrayNode producers = answer.putArray("producers");
        log.activeProducers().forEach(state -> producers.addArray()
            .add(state.producerId()).add(state.producerEpoch()).add(state.lastSequence()));
    }

    private static class StandingTime implements Time {
        private final long now;

        StandingTime(long now) {
            this.now = now;
        }

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return now * 1000000;
        }

        @Override
        public void sleep(long ms) {
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
        }
    }

    /** What is to be done later (deleting files) is left for the next start. */
    private static class NoScheduler implements Scheduler {
        @Override
        public void startup() {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delay, long period) {
            return (ScheduledFuture<?>) Proxy.newProxyInstance(
                LogCleaning.class.getClassLoader(),
                new Class<?>[] {ScheduledFuture.class},
                (proxy, method, arguments) -> method.getReturnType() == boolean.class ? Boolean.FALSE : null);
        }

        @Override
        public void resizeThreadPool(int size) {
        }
    }
}
