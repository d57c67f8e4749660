import com.fasterxml.jackson.core.json.JsonReadFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.BinaryNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.BaseRecords;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.record.internal.UnalignedMemoryRecords;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.common.utils.internals.ByteBufferOutputStream;
import org.apache.kafka.common.utils.internals.Crc32C;

/**
 * Lets the Python tests ask Apache Kafka's own classes what they make of some bytes.
 *
 * <p>The program reads frames from standard input, answers each one on standard output, and ends when its input is
 * closed. A frame carries any number of calls, so that thousands of them cost one exchange:
 *
 * <pre>
 *   request:   int32 length | [{"op": "decode", "name": "VoteRequest", "version": 2, "size": 31}, ...] \n | payloads
 *   response:  int32 length | [{"size": 118}, {"error": {"class": ..., "message": ...}}, ...]          \n | payloads
 * </pre>
 *
 * The payloads follow the header line one after the other; {@code size} says how long each one is. One call that fails
 * leaves the others of its frame alone.
 *
 * <p>Arguments: the jars of Kafka's server side. They are loaded apart from the class path, see {@link ServerJars}.
 */
public final class Oracle {
    private static final ObjectMapper JSON =
        JsonMapper.builder().enable(JsonReadFeature.ALLOW_NON_NUMERIC_NUMBERS).build();

    private final Map<String, Codec> codecs = new TreeMap<>();

    public static void main(String[] jars) throws Exception {
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)));
        // A library that prints must not be able to break the framing.
        System.setOut(System.err);
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        Oracle oracle = new Oracle(jars);
        while (true) {
            byte[] frame;
            try {
                frame = new byte[in.readInt()];
            } catch (EOFException end) {
                return;
            }
            in.readFully(frame);
            byte[] answer = oracle.answer(ByteBuffer.wrap(frame));
            out.writeInt(answer.length);
            out.write(answer);
            out.flush();
        }
    }

    Oracle(String[] serverJars) throws IOException, ReflectiveOperationException {
        ClassLoader server = new ServerJars(serverJars);
        for (String jar : System.getProperty("java.class.path").split(Pattern.quote(java.io.File.pathSeparator))) {
            if (Path.of(jar).getFileName().toString().startsWith("kafka-clients")) {
                addCodecs(jar, Oracle.class.getClassLoader());
            }
        }
        for (String jar : serverJars) {
            addCodecs(jar, server);
        }
    }

    /** Every generated message class has its JSON converter beside it, which is how the messages are found. */
    private void addCodecs(String jar, ClassLoader loader) throws IOException, ReflectiveOperationException {
        String suffix = "JsonConverter.class";
        try (ZipFile zip = new ZipFile(jar)) {
            for (ZipEntry entry : Collections.list(zip.entries())) {
                String path = entry.getName();
                if (path.endsWith(suffix) && path.indexOf('$') < 0) {
                    String className = path.substring(0, path.length() - suffix.length()).replace('/', '.');
                    Codec codec = new Codec(className, loader);
                    Codec other = codecs.put(codec.name, codec);
                    if (other != null) {
                        throw new IllegalStateException(className + " and " + other.type + " have the same name");
                    }
                }
            }
        }
    }

    private byte[] answer(ByteBuffer frame) throws IOException {
        int newline = 0;
        while (frame.get(newline) != '\n') {
            newline++;
        }
        JsonNode calls = JSON.readTree(frame.array(), 0, newline);
        frame.position(newline + 1);
        ArrayNode results = JSON.createArrayNode();
        List<byte[]> payloads = new ArrayList<>();
        for (JsonNode call : calls) {
            byte[] payload = new byte[call.get("size").intValue()];
            frame.get(payload);
            ObjectNode result = results.addObject();
            try {
                byte[] bytes = run(call, payload);
                payloads.add(bytes);
                result.put("size", bytes.length);
            } catch (Throwable thrown) {  // also StackOverflowError and the like: hostile input is what we are asked about
                Throwable cause = thrown instanceof InvocationTargetException ? thrown.getCause() : thrown;
                result.putObject("error").put("class", cause.getClass().getName()).put("message", cause.getMessage());
            }
        }
        ByteArrayOutputStream answer = new ByteArrayOutputStream();
        answer.write(JSON.writeValueAsBytes(results));
        answer.write('\n');
        for (byte[] payload : payloads) {
            answer.write(payload);
        }
        return answer.toByteArray();
    }

    private byte[] run(JsonNode call, byte[] payload) throws Exception {
        String op = call.get("op").textValue();
        switch (op) {
            case "decode":
                return JSON.writeValueAsBytes(codec(call).toJson(version(call), payload));
            case "encode":
                return codec(call).fromJson(version(call), JSON.readTree(payload));
            case "reencode":
                return codec(call).reencode(version(call), payload);
            case "default":
                return codec(call).defaults(version(call));
            case "messages":
                return JSON.writeValueAsBytes(describeMessages());
            case "read_batches":
                return JSON.writeValueAsBytes(Batches.read(payload, call.get("allow_partial").booleanValue()));
            case "write_batch":
                return Batches.write(JSON.readTree(payload));
            case "write_end_txn_marker":
                return Batches.writeEndTxnMarker(JSON.readTree(payload));
            case "error_response":
                return ErrorResponses.of(call, payload);
            case "errors":
                return JSON.writeValueAsBytes(Tables.errors());
            case "api_keys":
                return JSON.writeValueAsBytes(Tables.apiKeys());
            case "murmur2":
                return ByteBuffer.allocate(4).putInt(Utils.murmur2(payload)).array();
            case "crc32c":
                return ByteBuffer.allocate(8).putLong(Crc32C.compute(payload, 0, payload.length)).array();
            default:
                throw new IllegalArgumentException("no such operation: " + op);
        }
    }

    private Codec codec(JsonNode call) {
        String name = call.get("name").textValue();
        Codec codec = codecs.get(name);
        if (codec == null) {
            throw new IllegalArgumentException("no such message: " + name);
        }
        return codec;
    }

    private static short version(JsonNode call) {
        return (short) call.get("version").intValue();
    }

    private ObjectNode describeMessages() throws ReflectiveOperationException {
        ObjectNode messages = JSON.createObjectNode();
        for (Codec codec : codecs.values()) {
            Message message = codec.empty();
            ObjectNode description = messages.putObject(codec.name);
            description.put("class", codec.type.getName());
            description.put("lowestVersion", message.lowestSupportedVersion());
            description.put("highestVersion", message.highestSupportedVersion());
            description.put("apiKey", message instanceof ApiMessage ? ((ApiMessage) message).apiKey() : -1);
        }
        return messages;
    }

    /**
     * One generated message class: bytes, object and JSON, each from the other.
     *
     * <p>Its name is the one in the message definition. The generator appends "Data" to requests, responses and their
     * headers but not to the rest; some of the rest have a name that ends in "Data" by itself.
     */
    private static final class Codec {
        private static final Pattern GENERATED_SUFFIX = Pattern.compile("(Request|Response)(Header)?Data$");

        final String name;
        final Class<?> type;
        private final Constructor<?> create;
        private final Constructor<?> read;
        private final Method toJson;
        private final Method fromJson;

        Codec(String className, ClassLoader loader) throws ReflectiveOperationException {
            type = Class.forName(className, true, loader);
            Class<?> converter = Class.forName(className + "JsonConverter", true, loader);
            String simpleName = type.getSimpleName();
            name = GENERATED_SUFFIX.matcher(simpleName).find()
                ? simpleName.substring(0, simpleName.length() - "Data".length()) : simpleName;
            create = type.getConstructor();
            read = type.getConstructor(org.apache.kafka.common.protocol.Readable.class, short.class);
            toJson = converter.getMethod("write", type, short.class, boolean.class);
            fromJson = converter.getMethod("read", JsonNode.class, short.class);
        }

        Message empty() throws ReflectiveOperationException {
            return (Message) create.newInstance();
        }

        JsonNode toJson(short version, byte[] payload) throws ReflectiveOperationException {
            Message message = read(version, payload);
            JsonNode json = (JsonNode) toJson.invoke(null, message, version, true);
            putRecords(message, json);
            return json;
        }

        byte[] fromJson(short version, JsonNode json) throws ReflectiveOperationException {
            checkVersion(version);
            return write(version, (Message) fromJson.invoke(null, json, version));
        }

        byte[] reencode(short version, byte[] payload) throws ReflectiveOperationException {
            return write(version, read(version, payload));
        }

        byte[] defaults(short version) throws ReflectiveOperationException {
            checkVersion(version);
            return write(version, empty());
        }

        private Message read(short version, byte[] payload) throws ReflectiveOperationException {
            checkVersion(version);
            ByteBuffer buffer = ByteBuffer.wrap(payload);
            Message message = (Message) read.newInstance(new ByteBufferAccessor(buffer), version);
            if (buffer.hasRemaining()) {
                throw new IllegalArgumentException(buffer.remaining() + " of " + payload.length + " bytes left over after "
                    + name + " version " + version);
            }
            return message;
        }

        private static byte[] write(short version, Message message) {
            return bytes(MessageUtil.toByteBufferAccessor(message, version).buffer());
        }

        /** The generated code by itself takes versions below its range as well. */
        private void checkVersion(short version) throws ReflectiveOperationException {
            Message message = empty();
            if (version < message.lowestSupportedVersion() || version > message.highestSupportedVersion()) {
                throw new IllegalArgumentException(name + " has versions " + message.lowestSupportedVersion() + " to "
                    + message.highestSupportedVersion() + ", not " + version);
            }
        }

        /** The converters read record data from JSON but leave it out when they write; here it is put in. */
        private static void putRecords(Object message, JsonNode json) throws ReflectiveOperationException {
            for (Field field : message.getClass().getDeclaredFields()) {
                JsonNode node = json.get(field.getName());
                if (node == null || Modifier.isStatic(field.getModifiers())) {
                    continue;
                }
                field.setAccessible(true);
                Object value = field.get(message);
                if (value instanceof BaseRecords) {
                    ((ObjectNode) json).set(field.getName(), new BinaryNode(recordBytes((BaseRecords) value)));
                } else if (value instanceof Message) {
                    putRecords(value, node);
                } else if (value instanceof Collection) {
                    Iterator<JsonNode> nodes = node.elements();
                    for (Object element : (Collection<?>) value) {
                        JsonNode elementNode = nodes.next();
                        if (element instanceof Message) {
                            putRecords(element, elementNode);
                        }
                    }
                }
            }
        }

        private static byte[] recordBytes(BaseRecords records) {
            return bytes(records instanceof MemoryRecords
                ? ((MemoryRecords) records).buffer() : ((UnalignedMemoryRecords) records).buffer());
        }
    }

    /** Record batches of format 2, to and from JSON. */
    private static final class Batches {
        static ArrayNode read(byte[] data, boolean allowPartial) {
            ArrayNode batches = JSON.createArrayNode();
            int size = 0;
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
                batches.add(describe(batch));
                size += batch.sizeInBytes();
            }
            if (size != data.length && !allowPartial) {
                throw new IllegalArgumentException((data.length - size) + " of " + data.length
                    + " bytes left over after " + batches.size() + " batches");
            }
            return batches;
        }

        private static ObjectNode describe(MutableRecordBatch batch) {
            ObjectNode json = JSON.createObjectNode();
            json.put("sizeInBytes", batch.sizeInBytes());
            json.put("magic", batch.magic());
            try {
                batch.ensureValid();
                json.put("baseOffset", batch.baseOffset());
                json.put("lastOffset", batch.lastOffset());
                json.put("compression", batch.compressionType().name);
                json.put("timestampType", batch.timestampType().name);
                json.put("producerId", batch.producerId());
                json.put("producerEpoch", batch.producerEpoch());
                json.put("baseSequence", batch.baseSequence());
                json.put("lastSequence", batch.lastSequence());
                json.put("isTransactional", batch.isTransactional());
                json.put("isControl", batch.isControlBatch());
                json.put("partitionLeaderEpoch", batch.partitionLeaderEpoch());
                json.put("maxTimestamp", batch.maxTimestamp());
                json.put("deleteHorizonMs", batch.deleteHorizonMs().isPresent() ? batch.deleteHorizonMs().getAsLong() : null);
                json.put("checksum", batch.checksum());
                json.put("count", batch.countOrNull());
                if (batch instanceof DefaultRecordBatch) {
                    json.put("baseTimestamp", ((DefaultRecordBatch) batch).baseTimestamp());
                }
                ArrayNode records = JSON.createArrayNode();
                for (Record record : batch) {
                    records.add(describe(record, batch.isControlBatch()));
                }
                json.set("records", records);
                json.put("valid", true);
                json.putNull("error");
            } catch (RuntimeException broken) {
                json.putNull("records");
                json.put("valid", false);
                json.put("error", broken.getClass().getSimpleName() + ": " + broken.getMessage());
            }
            return json;
        }

        private static ObjectNode describe(Record record, boolean isControl) {
            record.ensureValid();
            ObjectNode json = JSON.createObjectNode();
            json.put("offset", record.offset());
            json.put("timestamp", record.timestamp());
            json.put("sequence", record.sequence());
            json.put("key", base64(record.key()));
            json.put("value", base64(record.value()));
            ArrayNode headers = json.putArray("headers");
            for (Header header : record.headers()) {
                byte[] value = header.value();
                headers.addArray().add(header.key()).add(value == null ? null : base64(ByteBuffer.wrap(value)));
            }
            if (isControl) {
                json.put("controlType", ControlRecordType.parse(record.key()).name());
            }
            return json;
        }

        static byte[] write(JsonNode spec) {
            TimestampType timestampType = TimestampType.forName(spec.get("timestampType").textValue());
            boolean isControl = spec.path("isControl").asBoolean(false);
            long baseOffset = spec.path("baseOffset").asLong(0);
            long newest = RecordBatch.NO_TIMESTAMP;
            for (JsonNode record : spec.get("records")) {
                newest = Math.max(newest, record.get("timestamp").longValue());
            }
            MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
                new ByteBufferOutputStream(1024), RecordBatch.CURRENT_MAGIC_VALUE, compression(spec), timestampType,
                baseOffset, spec.path("logAppendTime").asLong(newest),
                spec.path("producerId").asLong(RecordBatch.NO_PRODUCER_ID),
                (short) spec.path("producerEpoch").asInt(RecordBatch.NO_PRODUCER_EPOCH),
                spec.path("baseSequence").asInt(RecordBatch.NO_SEQUENCE),
                spec.path("isTransactional").asBoolean(false), isControl,
                spec.path("partitionLeaderEpoch").asInt(RecordBatch.NO_PARTITION_LEADER_EPOCH),
                Integer.MAX_VALUE, spec.path("deleteHorizonMs").asLong(RecordBatch.NO_TIMESTAMP));
            long offset = baseOffset;
            for (JsonNode record : spec.get("records")) {
                offset = record.path("offset").asLong(offset);
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : record.path("headers")) {
                    headers.add(new RecordHeader(header.get(0).textValue(), unbase64(header.get(1))));
                }
                SimpleRecord simple = new SimpleRecord(record.get("timestamp").longValue(), unbase64(record.get("key")),
                    unbase64(record.get("value")), headers.toArray(new Header[0]));
                if (isControl) {
                    builder.appendControlRecordWithOffset(offset, simple);
                } else {
                    builder.appendWithOffset(offset, simple);
                }
                offset++;
            }
            return bytes(builder.build().buffer());
        }

        private static Compression compression(JsonNode spec) {
            CompressionType type = CompressionType.forName(spec.path("compression").asText("none"));
            JsonNode level = spec.path("level");
            if (level.isNull() || level.isMissingNode()) {
                return Compression.of(type).build();
            }
            switch (type) {
                case GZIP:
                    return Compression.gzip().level(level.intValue()).build();
                case LZ4:
                    return Compression.lz4().level(level.intValue()).build();
                case ZSTD:
                    return Compression.zstd().level(level.intValue()).build();
                default:
                    throw new IllegalArgumentException("compression " + type.name + " has no levels");
            }
        }

        static byte[] writeEndTxnMarker(JsonNode spec) {
            EndTransactionMarker marker = new EndTransactionMarker(
                ControlRecordType.valueOf(spec.get("controlType").textValue()), spec.get("coordinatorEpoch").intValue());
            return bytes(MemoryRecords.withEndTransactionMarker(
                spec.path("baseOffset").asLong(0), spec.get("timestamp").longValue(),
                spec.path("partitionLeaderEpoch").asInt(RecordBatch.NO_PARTITION_LEADER_EPOCH),
                spec.get("producerId").longValue(), (short) spec.get("producerEpoch").intValue(), marker).buffer());
        }

        private static String base64(ByteBuffer buffer) {
            return buffer == null ? null : Base64.getEncoder().encodeToString(bytes(buffer));
        }

        private static byte[] unbase64(JsonNode node) {
            return node == null || node.isNull() ? null : Base64.getDecoder().decode(node.textValue());
        }
    }

    /** The enumerations of the protocol. */
    /** What a broker answers to a request that failed as a whole. */
    private static final class ErrorResponses {
        /** A byte that says whether there is an answer at all, and the answer without its header. */
        static byte[] of(JsonNode call, byte[] payload) {
            ByteBuffer buffer = ByteBuffer.wrap(payload);
            AbstractRequest request = AbstractRequest.parseRequest(
                ApiKeys.forId(call.get("api_key").intValue()), version(call), new ByteBufferAccessor(buffer)).request;
            if (buffer.hasRemaining()) {
                throw new IllegalArgumentException(buffer.remaining() + " bytes left over after the request");
            }
            Errors error = Errors.forCode((short) call.get("code").intValue());
            JsonNode message = call.get("message");
            Throwable thrown = message.isNull() ? error.exception() : error.exception(message.textValue());
            AbstractResponse response = request.getErrorResponse(call.get("throttle_time_ms").intValue(), thrown);
            if (response == null) {
                return new byte[] {0};
            }
            byte[] body = bytes(MessageUtil.toByteBufferAccessor(response.data(), version(call)).buffer());
            return ByteBuffer.allocate(1 + body.length).put((byte) 1).put(body).array();
        }
    }

    private static final class Tables {
        static ArrayNode errors() {
            ArrayNode errors = JSON.createArrayNode();
            for (Errors error : Errors.values()) {
                ObjectNode json = errors.addObject();
                json.put("code", error.code());
                json.put("name", error.name());
                json.put("exception", error.exception() == null ? null : error.exception().getClass().getSimpleName());
                ArrayNode superclasses = json.putArray("superclasses");
                if (error.exception() != null) {
                    Class<?> parent = error.exception().getClass().getSuperclass();
                    for (; parent != Object.class; parent = parent.getSuperclass()) {
                        superclasses.add(parent.getSimpleName());
                    }
                }
                json.put("retriable", error.exception() instanceof RetriableException);
                json.put("message", error.message());
            }
            return errors;
        }

        static ArrayNode apiKeys() {
            ArrayNode keys = JSON.createArrayNode();
            for (ApiKeys key : ApiKeys.values()) {
                ObjectNode json = keys.addObject();
                json.put("id", key.id);
                json.put("name", key.name);
                json.put("enumName", key.name());
                ArrayNode listeners = json.putArray("listeners");
                for (ApiMessageType.ListenerType listener : key.messageType.listeners()) {
                    listeners.add(listener.name());
                }
                json.put("lowestVersion", key.oldestVersion());
                json.put("highestVersion", key.latestVersion(false));
                json.put("highestUnstableVersion", key.latestVersion(true));
                json.put("clusterAction", key.clusterAction);
                json.put("forwardable", key.forwardable);
                json.put("requiresDelayedAllocation", key.requiresDelayedAllocation);
                ObjectNode requestHeaders = json.putObject("requestHeaderVersions");
                ObjectNode responseHeaders = json.putObject("responseHeaderVersions");
                for (short version = key.oldestVersion(); version <= key.latestVersion(true); version++) {
                    requestHeaders.put(Short.toString(version), key.requestHeaderVersion(version));
                    responseHeaders.put(Short.toString(version), key.responseHeaderVersion(version));
                }
            }
            return keys;
        }
    }

    /**
     * Loads the classes of Kafka's server-side jars beside a newer kafka-clients jar.
     *
     * <p>Kafka 4.4 moved helper classes such as ByteUtils from {@code common.utils} to {@code common.utils.internals}.
     * The code generated for 4.3 asks for them at their old place, so each reference to a class that is no longer
     * there is pointed at the new one while the class is loaded. What the generated code does is left as it is.
     */
    private static final class ServerJars extends URLClassLoader {
        private static final Pattern HELPER = Pattern.compile("org/apache/kafka/common/utils/(?=[A-Z])([A-Za-z]+)");

        private final Map<String, String> places = new HashMap<>();

        ServerJars(String[] jars) {
            super(urls(jars), Oracle.class.getClassLoader());
        }

        private static URL[] urls(String[] jars) {
            URL[] urls = new URL[jars.length];
            for (int i = 0; i < jars.length; i++) {
                try {
                    urls[i] = Path.of(jars[i]).toUri().toURL();
                } catch (MalformedURLException impossible) {
                    throw new UncheckedIOException(impossible);
                }
            }
            return urls;
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

        /** Copies a class file with every string of its constant pool passed through {@link #relocate(String)}. */
        private byte[] relocate(byte[] classFile) throws IOException {
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(classFile));
            ByteArrayOutputStream result = new ByteArrayOutputStream(classFile.length + 256);
            DataOutputStream out = new DataOutputStream(result);
            out.writeLong(in.readLong());  // magic number and version
            int count = in.readUnsignedShort();
            out.writeShort(count);
            for (int i = 1; i < count; i++) {
                int tag = in.readUnsignedByte();
                out.writeByte(tag);
                switch (tag) {
                    case 1:  // Utf8
                        out.writeUTF(relocate(in.readUTF()));
                        break;
                    case 5:  // Long and Double take up two places of the pool
                    case 6:
                        out.write(in.readNBytes(8));
                        i++;
                        break;
                    case 7:  // Class, String, MethodType, Module, Package
                    case 8:
                    case 16:
                    case 19:
                    case 20:
                        out.write(in.readNBytes(2));
                        break;
                    case 15:  // MethodHandle
                        out.write(in.readNBytes(3));
                        break;
                    default:  // Integer, Float, the references, NameAndType, Dynamic, InvokeDynamic
                        out.write(in.readNBytes(4));
                        break;
                }
            }
            out.write(in.readAllBytes());
            return result.toByteArray();
        }

        private String relocate(String constant) {
            return HELPER.matcher(constant).replaceAll(match -> places.computeIfAbsent(match.group(), this::placeOf));
        }

        private String placeOf(String helper) {
            String moved = helper.replace("/utils/", "/utils/internals/");
            boolean isGone = getParent().getResource(helper + ".class") == null;
            return isGone && getParent().getResource(moved + ".class") != null ? moved : helper;
        }
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }
}
