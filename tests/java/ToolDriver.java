import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

import org.apache.kafka.common.utils.Exit;

/**
 * Apache Kafka's command line tools, many runs in one virtual machine.
 *
 * A question is a line of JSON on the standard input, {"main": class, "args": [...], "stdin": text}; its answer a line of
 * JSON on the standard output, {"exit": status, "out": text, "err": text}. What a tool does is what it does on a command
 * line: its main method is called with other standard streams, and its way of ending the process ends the call.
 */
public class ToolDriver {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** A tool wants the process to end. An Error, so that few tools take it for a failure of their own. */
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1;

        final int status;

        Ended(int status) {
            super("exit " + status, null, false, false);
            this.status = status;
        }
    }

    /** What the tool of the moment wants to be done when the process ends, such as to send what it has not sent yet. */
    private static final List<Runnable> HOOKS = new CopyOnWriteArrayList<>();

    /** The first status that the tool of the moment asked to end with; what it does in the throes of that is void. */
    private static volatile Ended ended;

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        InputStream questions = System.in;
        System.setOut(System.err);
        Exit.setExitProcedure((status, message) -> end(status));
        Exit.setHaltProcedure((status, message) -> end(status));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        BufferedReader in = new BufferedReader(new InputStreamReader(questions, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            answers.println(JSON.writeValueAsString(run(JSON.readTree(line))));
        }
        Runtime.getRuntime().halt(0); // a tool may have left threads behind
    }

    private static void end(int status) {
        if (ended == null) {
            ended = new Ended(status);
        }
        throw ended;
    }

    private static ObjectNode run(JsonNode question) {
        List<String> arguments = new ArrayList<>();
        question.get("args").forEach(one -> arguments.add(one.asText()));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream before = System.out;
        PrintStream beforeErr = System.err;
        ended = null;
        int status = 0;
        System.setIn(new ByteArrayInputStream(question.path("stdin").asText("").getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        try {
            Class.forName(question.get("main").asText())
                .getMethod("main", String[].class)
                .invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException failure) {
            if (ended == null) {
                failure.getCause().printStackTrace();
                status = 1;
            }
        } catch (ReflectiveOperationException failure) {
            failure.printStackTrace();
            status = 2;
        } finally {
            for (Runnable hook : HOOKS) {
                hook.run();
            }
            HOOKS.clear();
            System.out.flush();
            System.err.flush();
            System.setOut(before);
            System.setErr(beforeErr);
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.put("exit", ended != null ? ended.status : status);
        answer.put("out", out.toString(StandardCharsets.UTF_8));
        answer.put("err", err.toString(StandardCharsets.UTF_8));
        return answer;
    }
}
