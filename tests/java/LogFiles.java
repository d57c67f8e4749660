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
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Optional;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LazyIndex;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogFileUtils;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetPosition;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.TimestampOffset;
import org.apache.kafka.storage.internals.log.TransactionIndex;
import org.apache.kafka.storage.internals.log.TxnIndexSearchResult;

/**
 * Apache Kafka's storage classes at work on the files of one segment.
 *
 * A question is a line of JSON on the standard input, its answer a line of JSON on the standard output:
 * {"op": ..., "dir": ..., "base": offset, "interval": bytes, "indexBytes": bytes, ...}. An answer with "error" says that
 * Java threw.
 */
public class LogFiles {
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
        File dir = new File(question.get("dir").asText());
        long base = question.get("base").asLong();
        int indexBytes = question.get("indexBytes").asInt();
        LogSegment segment = new LogSegment(
            FileRecords.open(LogFileUtils.logFile(dir, base), true, 0, false),
            LazyIndex.forOffset(LogFileUtils.offsetIndexFile(dir, base), base, indexBytes),
            LazyIndex.forTime(LogFileUtils.timeIndexFile(dir, base), base, indexBytes),
            new TransactionIndex(base, LogFileUtils.transactionIndexFile(dir, base, "")),
            base,
            question.get("interval").asInt(),
            0,
            Time.SYSTEM);
        switch (question.get("op").asText()) {
            case "describe":
                describe(segment, question, answer);
                break;
            case "append":
                append(segment, question);
                break;
            case "recover":
                recover(segment, dir, answer);
                break;
            case "truncate":
                answer.put("truncated", segment.truncateTo(question.get("offset").asLong()));
                break;
            default:
                throw new IllegalArgumentException("no operation " + question.get("op"));
        }
        segment.close();
    }

    /** All that the indexes have, and what they answer. */
    private static void describe(LogSegment segment, JsonNode question, ObjectNode answer) throws Exception {
        segment.sanityCheck(false);
        segment.offsetIndex().sanityCheck();
        segment.timeIndex().sanityCheck();
        ArrayNode offsets = answer.putArray("offsetIndex");
        for (int n = 0; n < segment.offsetIndex().entries(); n++)
            pair(offsets, segment.offsetIndex().entry(n));
        ArrayNode times = answer.putArray("timeIndex");
        for (int n = 0; n < segment.timeIndex().entries(); n++)
            pair(times, segment.timeIndex().entry(n));
        ArrayNode aborted = answer.putArray("aborted");
        for (AbortedTxn txn : segment.txnIndex().allAbortedTxns())
            aborted.addArray().add(txn.producerId()).add(txn.firstOffset()).add(txn.lastOffset())
                .add(txn.lastStableOffset());
        answer.put("nextOffset", segment.readNextOffset());
        answer.put("maxTimestamp", segment.readMaxTimestampAndOffsetSoFar().timestamp());
        answer.put("offsetOfMaxTimestamp", segment.readMaxTimestampAndOffsetSoFar().offset());
        answer.put("size", segment.size());

        ArrayNode reads = answer.putArray("reads");
        for (JsonNode offset : question.get("offsets")) {
            FetchDataInfo info = segment.read(offset.asLong(), question.get("maxSize").asInt(),
                Optional.of((long) segment.size()), question.get("minOneMessage").asBoolean());
            if (info == null)
                reads.addNull();
            else
                reads.addArray().add(info.fetchOffsetMetadata.messageOffset)
                    .add(info.fetchOffsetMetadata.segmentBaseOffset)
                    .add(info.fetchOffsetMetadata.relativePositionInSegment)
                    .add(info.records.sizeInBytes())
                    .add(info.firstEntryIncomplete);
        }
        ArrayNode bounds = answer.putArray("upperBounds");
        for (JsonNode offset : question.get("offsets")) {
            OffsetPosition start = segment.offsetIndex().lookup(offset.asLong());
            segment.fetchUpperBoundOffset(start, question.get("maxSize").asInt())
                .ifPresentOrElse(bounds::add, bounds::addNull);
        }
        ArrayNode found = answer.putArray("byTimestamp");
        for (JsonNode wanted : question.get("timestamps")) {
            segment.findOffsetByTimestamp(wanted.get(0).asLong(), wanted.get(1).asLong()).ifPresentOrElse(
                record -> found.addArray().add(record.timestamp).add(record.offset).add(record.leaderEpoch.orElse(-1)),
                found::addNull);
        }
        ArrayNode collected = answer.putArray("collected");
        for (JsonNode range : question.get("ranges")) {
            TxnIndexSearchResult result = segment.collectAbortedTxns(range.get(0).asLong(), range.get(1).asLong());
            ArrayNode each = collected.addArray();
            ArrayNode producers = each.addArray();
            result.abortedTransactions().forEach(txn -> producers.add(txn.producerId()));
            each.add(result.isComplete());
        }
    }

    private static void pair(ArrayNode to, OffsetPosition entry) {
        to.addArray().add(entry.offset()).add(entry.position());
    }

    private static void pair(ArrayNode to, TimestampOffset entry) {
        to.addArray().add(entry.timestamp()).add(entry.offset());
    }

    /** Appends the batches in the file "input", as many bytes at a time as "sizes" says; then notes transactions. */
    private static void append(LogSegment segment, JsonNode question) throws Exception {
        byte[] input = Files.readAllBytes(new File(question.get("input").asText()).toPath());
        int position = 0;
        for (JsonNode size : question.get("sizes")) {
            MemoryRecords records = MemoryRecords.readableRecords(
                ByteBuffer.wrap(input, position, size.asInt()).slice());
            segment.append(records.lastBatch().get().lastOffset(), records);
            position += size.asInt();
        }
        for (JsonNode txn : question.get("aborted"))
            segment.txnIndex().append(new AbortedTxn(
                txn.get(0).asLong(), txn.get(1).asLong(), txn.get(2).asLong(), txn.get(3).asLong()));
    }

    private static void recover(LogSegment segment, File dir, ObjectNode answer) throws Exception {
        TopicPartition partition = new TopicPartition("topic", 0);
        ProducerStateManager producers = new ProducerStateManager(
            partition, dir, 5 * 60 * 1000, new ProducerStateManagerConfig(86400000, false), Time.SYSTEM);
        LeaderEpochFileCache epochs = new LeaderEpochFileCache(
            partition,
            new LeaderEpochCheckpointFile(new File(dir, "epochs"), new LogDirFailureChannel(1)),
            new KafkaScheduler(1));
        answer.put("truncated", segment.recover(producers, epochs));
        ArrayNode entries = answer.putArray("epochs");
        for (EpochEntry entry : epochs.epochEntries())
            entries.addArray().add(entry.epoch()).add(entry.startOffset());
    }
}
