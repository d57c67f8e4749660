import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ScheduledFuture;
import java.util.regex.Pattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.MetaPropertiesVersion;
import org.apache.kafka.metadata.properties.PropertiesUtils;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadata;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.CompletedTxn;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SnapshotFile;
import org.apache.kafka.storage.internals.log.VerificationStateEntry;

/**
 * Lets the Python tests ask Apache Kafka's storage classes to read our files, to write files for us to read, and to go
 * through the same steps as ours.
 *
 * <p>The program reads calls from standard input, one JSON object a line, and answers each with one line:
 * {@code {"result": ...}} or {@code {"error": {"class": ..., "message": ...}}}. It ends when its input is closed.
 *
 * <p>Arguments: the jars of Kafka's server side, which {@link ServerJars} loads.
 */
public final class StorageOracle {
    private StorageOracle() {}

    public static void main(String[] jars) throws Exception {
        ServerJars loader = new ServerJars(jars);
        Class<?> calls = loader.loadClass("StorageCalls");
        Constructor<?> constructor = calls.getDeclaredConstructor();
        constructor.setAccessible(true);
        ((Runnable) constructor.newInstance()).run();
    }

    /**
     * Loads Kafka's server-side classes, and {@link StorageCalls} that uses them, beside a newer kafka-clients jar.
     *
     * <p>Helper classes that Kafka 4.4 moved from {@code common.utils} to {@code common.utils.internals} are looked for
     * at their new place, by a change of the class files on their way in.
     */
    private static final class ServerJars extends URLClassLoader {
        private static final Pattern HELPER = Pattern.compile("org/apache/kafka/common/utils/(?=[A-Z])([A-Za-z0-9]+)");

        private final Map<String, String> places = new HashMap<>();

        ServerJars(String[] jars) throws IOException {
            super(urls(jars), StorageOracle.class.getClassLoader());
        }

        private static URL[] urls(String[] jars) throws IOException {
            URL[] urls = new URL[jars.length];
            for (int i = 0; i < jars.length; i++) {
                urls[i] = Path.of(jars[i]).toUri().toURL();
            }
            return urls;
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            synchronized (getClassLoadingLock(name)) {
                Class<?> loaded = findLoadedClass(name);
                if (loaded == null && name.startsWith("StorageCalls")) {
                    loaded = findClass(name);  // the parent has it too, but could not find what it uses
                }
                return loaded == null ? super.loadClass(name, resolve) : loaded;
            }
        }

        @Override
        protected Class<?> findClass(String name) throws ClassNotFoundException {
            try (InputStream in = getResourceAsStream(name.replace('.', '/') + ".class")) {
                if (in == null) {
                    throw new ClassNotFoundException(name);
                }
                byte[] code = relocate(in.readAllBytes());
                return defineClass(name, code, 0, code.length);
            } catch (IOException failed) {
                throw new ClassNotFoundException(name, failed);
            }
        }

        /** Copies a class file with the texts of its constant pool changed, of which each entry has a known size. */
        private byte[] relocate(byte[] classFile) throws IOException {
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(classFile));
            ByteArrayOutputStream result = new ByteArrayOutputStream(classFile.length + 256);
            DataOutputStream out = new DataOutputStream(result);
            out.writeLong(in.readLong());
            int count = in.readUnsignedShort();
            out.writeShort(count);
            for (int i = 1; i < count; i++) {
                int tag = in.readUnsignedByte();
                out.writeByte(tag);
                if (tag == 1) {
                    out.writeUTF(HELPER.matcher(in.readUTF()).replaceAll(
                        match -> places.computeIfAbsent(match.group(), this::placeOf)));
                } else {
                    boolean isWide = tag == 5 || tag == 6;  // long and double, which take up two places
                    boolean isNarrow = tag == 7 || tag == 8 || tag == 16 || tag == 19 || tag == 20;
                    out.write(in.readNBytes(isWide ? 8 : isNarrow ? 2 : tag == 15 ? 3 : 4));
                    i += isWide ? 1 : 0;
                }
            }
            out.write(in.readAllBytes());
            return result.toByteArray();
        }

        private String placeOf(String helper) {
            String moved = helper.replace("/utils/", "/utils/internals/");
            boolean isGone = getParent().getResource(helper + ".class") == null;
            return isGone && getParent().getResource(moved + ".class") != null ? moved : helper;
        }
    }
}

/** Everything that uses server-side classes. */
final class StorageCalls implements Runnable {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TopicPartition PARTITION = new TopicPartition("topic", 0);

    @Override
    public void run() {
        try {
            serve();
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    private void serve() throws IOException {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("result", JSON.valueToTree(call(JSON.readTree(line))));
            } catch (Throwable error) {
                answer.set("error", JSON.valueToTree(describe(error)));
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
    }

    private static Map<String, Object> describe(Throwable error) {
        Map<String, Object> description = new LinkedHashMap<>();
        description.put("class", error.getClass().getSimpleName());
        description.put("message", String.valueOf(error.getMessage()));
        return description;
    }

    private Object call(JsonNode call) throws Exception {
        File path = new File(call.path("path").asText());
        switch (call.get("op").asText()) {
            case "read_snapshot":
                return entries(ProducerStateManager.readSnapshot(path));
            case "write_snapshot":
                return writeSnapshot(path, call.get("entries"));
            case "read_epochs":
                return epochs(new LeaderEpochCheckpointFile(path, new LogDirFailureChannel(1)).read());
            case "write_epochs":
                new LeaderEpochCheckpointFile(path, new LogDirFailureChannel(1)).write(epochs(call.get("entries")));
                return null;
            case "read_offsets":
                return readOffsets(path);
            case "write_offsets":
                return writeOffsets(path, call.get("entries"));
            case "read_meta":
                return readMeta(path);
            case "write_meta":
                return writeMeta(path, call);
            case "read_partition_metadata":
                PartitionMetadata metadata = new PartitionMetadataFile(path, new LogDirFailureChannel(1)).read();
                return List.of(metadata.version(), metadata.topicId().toString());
            case "write_partition_metadata":
                PartitionMetadataFile file = new PartitionMetadataFile(path, new LogDirFailureChannel(1));
                file.record(Uuid.fromString(call.get("topic_id").asText()));
                file.maybeFlush();
                return null;
            case "read_clean_shutdown":
                OptionalLong epoch = new CleanShutdownFileHandler(path.toString()).read();
                return epoch.isPresent() ? epoch.getAsLong() : null;
            case "write_clean_shutdown":
                new CleanShutdownFileHandler(path.toString()).write(call.get("broker_epoch").asLong());
                return null;
            case "load_properties":
                return loadProperties(Base64.getDecoder().decode(call.get("data").asText()));
            case "parse_type":
                ConfigDef.Type type = ConfigDef.Type.valueOf(call.get("type").asText());
                return ConfigDef.convertToString(ConfigDef.parseType("key", call.get("value").asText(), type), type);
            case "config_keys":
                return configKeys();
            case "validate_topic_config":
                LogConfig.validate(strings(call.get("properties")));
                return null;
            case "epoch_script":
                return new EpochScript(path).run(call.get("steps"));
            case "producer_script":
                return new ProducerScript(path).run(call.get("steps"));
            default:
                throw new IllegalArgumentException("unknown call " + call.get("op"));
        }
    }

    // Snapshots

    private static List<Object> entries(Iterable<ProducerStateEntry> entries) {
        TreeMap<Long, Object> byId = new TreeMap<>();
        for (ProducerStateEntry entry : entries) {
            List<Object> batches = new ArrayList<>();
            for (BatchMetadata batch : entry.batchMetadata()) {
                batches.add(List.of(batch.lastSeq(), batch.lastOffset(), batch.offsetDelta(), batch.timestamp()));
            }
            byId.put(entry.producerId(), Arrays.asList(
                entry.producerId(), entry.producerEpoch(), entry.coordinatorEpoch(), entry.lastTimestamp(),
                number(entry.currentTxnFirstOffset()), batches));
        }
        return new ArrayList<>(byId.values());
    }

    private static Object writeSnapshot(File path, JsonNode entries) throws Exception {
        Method addBatch = ProducerStateEntry.class.getDeclaredMethod(
            "addBatch", short.class, int.class, long.class, int.class, long.class);
        addBatch.setAccessible(true);
        Map<Long, ProducerStateEntry> byId = new LinkedHashMap<>();
        for (JsonNode e : entries) {
            OptionalLong transaction = e.get(4).isNull() ? OptionalLong.empty() : OptionalLong.of(e.get(4).asLong());
            short epoch = (short) e.get(1).asInt();
            ProducerStateEntry entry = new ProducerStateEntry(
                e.get(0).asLong(), epoch, e.get(2).asInt(), e.get(3).asLong(), transaction);
            for (JsonNode b : e.get(5)) {
                addBatch.invoke(
                    entry, epoch, b.get(0).asInt(), b.get(1).asLong(), b.get(2).asInt(), b.get(3).asLong());
            }
            byId.put(entry.producerId(), entry);
        }
        ProducerStateManager.writeSnapshot(path, byId, true);
        return null;
    }

    // Checkpoints and other small files

    private static List<Object> epochs(Iterable<EpochEntry> entries) {
        List<Object> result = new ArrayList<>();
        entries.forEach(entry -> result.add(List.of(entry.epoch(), entry.startOffset())));
        return result;
    }

    private static List<EpochEntry> epochs(JsonNode entries) {
        List<EpochEntry> result = new ArrayList<>();
        entries.forEach(entry -> result.add(new EpochEntry(entry.get(0).asInt(), entry.get(1).asLong())));
        return result;
    }

    private static Object readOffsets(File path) throws IOException {
        List<Object> result = new ArrayList<>();
        new OffsetCheckpointFile(path, new LogDirFailureChannel(1)).read().forEach(
            (partition, offset) -> result.add(List.of(partition.topic(), partition.partition(), offset)));
        return result;
    }

    private static Object writeOffsets(File path, JsonNode entries) throws IOException {
        Map<TopicPartition, Long> offsets = new LinkedHashMap<>();
        for (JsonNode entry : entries) {
            offsets.put(new TopicPartition(entry.get(0).asText(), entry.get(1).asInt()), entry.get(2).asLong());
        }
        new OffsetCheckpointFile(path, new LogDirFailureChannel(1)).write(offsets);
        return null;
    }

    private static Object readMeta(File path) throws IOException {
        MetaProperties meta =
            new MetaProperties.Builder(PropertiesUtils.readPropertiesFile(path.toString())).build();
        return Arrays.asList(
            meta.version().number(), meta.clusterId().orElse(null), number(meta.nodeId()),
            meta.directoryId().map(Uuid::toString).orElse(null));
    }

    private static Object writeMeta(File path, JsonNode call) throws IOException {
        MetaProperties meta = new MetaProperties.Builder()
            .setVersion(MetaPropertiesVersion.fromNumber(call.get("version").asInt()))
            .setClusterId(call.get("cluster_id").asText())
            .setNodeId(call.get("node_id").asInt())
            .setDirectoryId(Uuid.fromString(call.get("directory_id").asText()))
            .build();
        PropertiesUtils.writePropertiesFile(meta.toProperties(), path.toString(), true);
        return null;
    }

    // Configuration

    private static Object loadProperties(byte[] data) throws IOException {
        Properties properties = new Properties();
        properties.load(new ByteArrayInputStream(data));
        return properties;
    }

    private static Map<String, String> strings(JsonNode node) {
        Map<String, String> result = new HashMap<>();
        node.properties().forEach(field -> result.put(field.getKey(), field.getValue().asText()));
        return result;
    }

    private static Object configKeys() {
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("topic", configKeys(LogConfig.configKeys()));
        Map<String, ConfigDef.ConfigKey> server = new HashMap<>(LogConfig.SERVER_CONFIG_DEF.configKeys());
        server.putAll(CleanerConfig.CONFIG_DEF.configKeys());
        result.put("server", configKeys(server));
        Map<String, Object> synonyms = new TreeMap<>();
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((topic, servers) -> {
            List<Object> pairs = new ArrayList<>();
            for (ConfigSynonym synonym : servers) {
                pairs.add(List.of(synonym.name(), synonym.converter().apply("7")));
            }
            synonyms.put(topic, pairs);
        });
        result.put("synonyms", synonyms);
        return result;
    }

    private static Object configKeys(Map<String, ConfigDef.ConfigKey> keys) {
        Map<String, Object> result = new TreeMap<>();
        for (ConfigDef.ConfigKey key : keys.values()) {
            result.put(key.name, Arrays.asList(
                key.type.name(), ConfigDef.convertToString(key.defaultValue, key.type),
                key.validator == null ? "" : key.validator.toString(), key.importance.name(), key.internalConfig));
        }
        return result;
    }

    // Scripts: the same steps for Kafka's class and for ours, and what each one leads to

    private abstract static class Script {
        List<Object> run(JsonNode steps) throws Exception {
            List<Object> outcomes = new ArrayList<>();
            for (JsonNode step : steps) {
                Object outcome;
                try {
                    outcome = step(step.get(0).asText(), step);
                } catch (IllegalArgumentException | org.apache.kafka.common.KafkaException refused) {
                    outcome = "refused: " + refused.getClass().getSimpleName();
                }
                outcomes.add(Arrays.asList(outcome, state()));
            }
            return outcomes;
        }

        abstract Object step(String name, JsonNode step) throws Exception;

        abstract Object state() throws Exception;
    }

    /** Steps of a LeaderEpochFileCache. */
    private static final class EpochScript extends Script {
        private final File file;
        private final LeaderEpochFileCache cache;

        EpochScript(File directory) throws IOException {
            file = LeaderEpochCheckpointFile.newFile(directory);
            cache = new LeaderEpochFileCache(
                PARTITION, new LeaderEpochCheckpointFile(file, new LogDirFailureChannel(1)), new AtOnce());
        }

        @Override
        Object step(String name, JsonNode step) {
            switch (name) {
                case "assign":
                    cache.assign(step.get(1).asInt(), step.get(2).asLong());
                    return null;
                case "assign_all":
                    cache.assign(epochs(step.get(1)));
                    return null;
                case "truncate_from_start":
                    cache.truncateFromStartAsyncFlush(step.get(1).asLong());
                    return null;
                case "truncate_from_end":
                    cache.truncateFromEndAsyncFlush(step.get(1).asLong());
                    return null;
                case "clear_and_flush":
                    cache.clearAndFlush();
                    return null;
                case "ask":
                    return answers(step.get(1).asInt(), step.get(2).asLong(), step.get(3).asLong());
                default:
                    throw new IllegalStateException(name);
            }
        }

        private Object answers(int epoch, long offset, long end) {
            Map.Entry<Integer, Long> endOffset = cache.endOffsetFor(epoch, 1000);
            return Arrays.asList(
                List.of(endOffset.getKey(), endOffset.getValue()),
                number(cache.epochForOffset(offset)),
                number(cache.previousEpoch()),
                number(cache.previousEpoch(epoch)),
                number(cache.nextEpoch(epoch)),
                pair(cache.epochEntry(epoch)),
                pair(cache.previousEntry(epoch)),
                pair(cache.earliestEntry()),
                pair(cache.latestEntry()),
                epochs(cache.epochEntriesInRange(offset, end)));
        }

        private static Object pair(Optional<EpochEntry> entry) {
            return entry.map(e -> List.of(e.epoch(), e.startOffset())).orElse(null);
        }

        @Override
        Object state() throws IOException {
            return List.of(
                epochs(cache.epochEntries()),
                epochs(new LeaderEpochCheckpointFile(file, new LogDirFailureChannel(1)).read()));
        }
    }

    /** A scheduler that runs its tasks on the spot. */
    private static final class AtOnce implements Scheduler {
        @Override
        public void startup() {}

        @Override
        public void shutdown() {}

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            task.run();
            return null;
        }

        @Override
        public void resizeThreadPool(int newSize) {}
    }

    /** Steps of a ProducerStateManager. */
    private static final class ProducerScript extends Script {
        private static final int EXPIRATION_MS = 1000;
        private static final int MAX_TRANSACTION_TIMEOUT_MS = 500;

        private final File directory;
        private final StandingTime time = new StandingTime();
        private ProducerStateManager manager;

        ProducerScript(File directory) throws IOException {
            this.directory = directory;
            open();
        }

        private void open() throws IOException {
            manager = new ProducerStateManager(
                PARTITION, directory, MAX_TRANSACTION_TIMEOUT_MS,
                new ProducerStateManagerConfig(EXPIRATION_MS, true), time);
        }

        @Override
        Object step(String name, JsonNode s) throws Exception {
            switch (name) {
                case "data":
                    return data(s);
                case "marker":
                    return marker(s);
                case "verify":
                    manager.maybeCreateVerificationStateEntry(
                        s.get(1).asLong(), s.get(2).asInt(), (short) s.get(3).asInt(), s.get(4).asBoolean());
                    return null;
                case "clear_verification":
                    manager.clearVerificationStateEntry(s.get(1).asLong());
                    return null;
                case "high_watermark":
                    manager.onHighWatermarkUpdated(s.get(1).asLong());
                    return null;
                case "log_start":
                    manager.onLogStartOffsetIncremented(s.get(1).asLong());
                    return null;
                case "time":
                    time.now = s.get(1).asLong();
                    manager.removeExpiredProducers(time.now);
                    return null;
                case "snapshot":
                    return manager.takeSnapshot(false).map(File::getName).orElse(null);
                case "truncate":
                    manager.truncateAndReload(s.get(1).asLong(), s.get(2).asLong(), time.now);
                    return null;
                case "truncate_fully":
                    manager.truncateFullyAndStartAt(s.get(1).asLong());
                    return null;
                case "reopen":
                    open();
                    return null;
                case "delete_before":
                    manager.deleteSnapshotsBefore(s.get(1).asLong());
                    return null;
                case "remove_stray":
                    List<Long> bases = new ArrayList<>();
                    s.get(1).forEach(base -> bases.add(base.asLong()));
                    manager.removeStraySnapshots(bases);
                    return null;
                case "mark_for_deletion":
                    Optional<SnapshotFile> marked = manager.removeAndMarkSnapshotForDeletion(s.get(1).asLong());
                    return marked.map(snapshot -> snapshot.file().getName()).orElse(null);
                default:
                    throw new IllegalStateException(name);
            }
        }

        private Object data(JsonNode s) {
            long producerId = s.get(1).asLong();
            long offset = s.get(6).asLong();
            long lastOffset = s.get(7).asLong();
            ProducerAppendInfo info = manager.prepareUpdate(producerId, AppendOrigin.valueOf(s.get(9).asText()));
            info.appendDataBatch(
                (short) s.get(2).asInt(), s.get(3).asInt(), s.get(4).asInt(), s.get(5).asLong(),
                new LogOffsetMetadata(offset), lastOffset, s.get(8).asBoolean());
            manager.update(info);
            manager.updateMapEndOffset(lastOffset + 1);
            return null;
        }

        private Object marker(JsonNode s) {
            long offset = s.get(4).asLong();
            ProducerAppendInfo info =
                manager.prepareUpdate(s.get(1).asLong(), AppendOrigin.valueOf(s.get(7).asText()));
            ControlRecordType type = s.get(6).asBoolean() ? ControlRecordType.ABORT : ControlRecordType.COMMIT;
            Optional<CompletedTxn> completed = info.appendEndTxnMarker(
                new EndTransactionMarker(type, s.get(3).asInt()), (short) s.get(2).asInt(), offset,
                s.get(5).asLong(), (short) s.get(8).asInt());
            manager.update(info);
            manager.updateMapEndOffset(offset + 1);
            if (completed.isEmpty()) {
                return null;
            }
            CompletedTxn txn = completed.get();
            long lastStableOffset = manager.lastStableOffset(txn);
            manager.completeTxn(txn);
            return List.of(
                txn.producerId(), txn.firstOffset(), txn.lastOffset(), txn.isAborted(), lastStableOffset);
        }

        @Override
        Object state() {
            String[] files = directory.list();
            Arrays.sort(files);
            Map<String, Object> state = new LinkedHashMap<>();
            state.put("producers", entries(manager.activeProducers().values()));
            state.put("first_unstable", manager.firstUnstableOffset().map(o -> o.messageOffset).orElse(null));
            state.put("first_undecided", number(manager.firstUndecidedOffset()));
            state.put("map_end", manager.mapEndOffset());
            state.put("latest_snapshot", number(manager.latestSnapshotOffset()));
            state.put("oldest_snapshot", number(manager.oldestSnapshotOffset()));
            state.put("empty", manager.isEmpty());
            state.put("late", manager.hasLateTransaction(time.now + 400_000));
            state.put("verification", verification(1));
            state.put("files", files);
            return state;
        }

        private Object verification(long producerId) {
            VerificationStateEntry entry = manager.verificationStateEntry(producerId);
            return entry == null
                ? null
                : List.of(entry.timestamp(), entry.lowestSequence(), entry.epoch(), entry.supportsEpochBump());
        }
    }

    private static final class StandingTime implements Time {
        private long now;

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return now * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }
    }

    private static Long number(OptionalLong value) {
        return value.isPresent() ? value.getAsLong() : null;
    }

    private static Integer number(OptionalInt value) {
        return value.isPresent() ? value.getAsInt() : null;
    }
}
