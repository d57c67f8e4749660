import com.yammer.metrics.stats.EWMA;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.*;

/**
 * Kafka's own stats, driven by a script on standard input: one command a line, its words separated by blanks.
 * Each command that asks for a number is answered with one line: the bits of the double, or of the long, in decimal.
 */
public class RecordedStats {
    static final Map<String, MeasurableStat> STATS = new HashMap<>();
    static final Map<String, EWMA> AVERAGES = new HashMap<>();
    static MetricConfig config = new MetricConfig();

    public static void main(String[] arguments) throws Exception {
        BufferedReader script = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        Metrics metrics = new Metrics();
        Sensor sensor = null;
        List<MetricName> sensorMetrics = new ArrayList<>();
        for (String line = script.readLine(); line != null; line = script.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "config":  // samples, window, event window, bound or "none", upper
                    config = new MetricConfig().samples(Integer.parseInt(words[1]))
                        .timeWindow(Long.parseLong(words[2]), TimeUnit.MILLISECONDS)
                        .eventWindow(Long.parseLong(words[3]));
                    if (!words[4].equals("none"))
                        config.quota(new Quota(Double.parseDouble(words[4]), Boolean.parseBoolean(words[5])));
                    for (MetricName name : sensorMetrics)
                        metrics.metric(name).config(config);
                    break;
                case "stat":  // its id, its class, a unit of time
                    STATS.put(words[1], make(words[2], TimeUnit.valueOf(words[3])));
                    break;
                case "record":  // id, value, time
                    STATS.get(words[1]).record(config, Double.parseDouble(words[2]), Long.parseLong(words[3]));
                    break;
                case "measure":  // id, time
                    answer(answers, STATS.get(words[1]).measure(config, Long.parseLong(words[2])));
                    break;
                case "window":  // id, time
                    answers.append(((Rate) STATS.get(words[1])).windowSize(config, Long.parseLong(words[2]))).append('\n');
                    break;
                case "sensor":  // name, then the ids of stats
                    sensor = metrics.sensor(words[1], config);
                    sensorMetrics.clear();
                    for (int i = 2; i < words.length; i++) {
                        MetricName name = metrics.metricName(words[1] + "-" + words[i], "g");
                        sensor.add(name, STATS.get(words[i]));
                        sensorMetrics.add(name);
                    }
                    break;
                case "sense":  // value, time: the violated metric's place and value, or -1
                    try {
                        sensor.record(Double.parseDouble(words[1]), Long.parseLong(words[2]), true);
                        answers.append("-1\n");
                    } catch (QuotaViolationException e) {
                        answers.append(sensorMetrics.indexOf(e.metric().metricName())).append('\n');
                        answer(answers, e.value());
                    }
                    break;
                case "tick":  // minutes, events
                    EWMA average = AVERAGES.computeIfAbsent(words[1], RecordedStats::average);
                    average.update(Long.parseLong(words[2]));
                    average.tick();
                    answer(answers, average.rate(TimeUnit.SECONDS));
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        System.out.print(answers);
    }

    static MeasurableStat make(String kind, TimeUnit unit) {
        switch (kind) {
            case "Avg": return new Avg();
            case "Max": return new Max();
            case "Min": return new Min();
            case "Value": return new Value();
            case "WindowedSum": return new WindowedSum();
            case "WindowedCount": return new WindowedCount();
            case "CumulativeSum": return new CumulativeSum();
            case "CumulativeCount": return new CumulativeCount();
            case "Rate": return new Rate(unit);
            case "CountRate": return new Rate(unit, new WindowedCount());
            case "SimpleRate": return new SimpleRate();
            case "TokenBucket": return new TokenBucket(unit);
            default: throw new IllegalArgumentException(kind);
        }
    }

    static EWMA average(String minutes) {
        switch (minutes) {
            case "1": return EWMA.oneMinuteEWMA();
            case "5": return EWMA.fiveMinuteEWMA();
            default: return EWMA.fifteenMinuteEWMA();
        }
    }

    static void answer(StringBuilder answers, double value) {
        answers.append(Double.doubleToLongBits(value)).append('\n');
    }
}
