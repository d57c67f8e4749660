"""Metrics of the broker and the clients, and the arithmetic that quotas are enforced with.

Kafka has two metric systems, and so does this package, because dashboards, tools and quotas of a Kafka cluster rely on
the names and the arithmetic of both:

* Kafka's own, from which quotas are built. A `sensor.Sensor` passes each recorded value to its `stats`, and
  `registry.Metrics` holds sensors and metrics by name. A quota measures a `stats.Rate` or, for controller mutations, a
  `stats.TokenBucket`.
* The one that Kafka's broker took from the Yammer library, in `yammer`: histograms, meters, timers and gauges with JMX
  names such as ``kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce``.

`prometheus.collect` makes `families` of both and of sources that compute their values at each export, under the names
that Kafka dashboards use. They are rendered as Prometheus text, or sent by OTLP (`barnabas.telemetry.otlp_exporter`).

Time is always a parameter: wall-clock milliseconds for sensors, as in Kafka, and monotonic nanoseconds for `yammer`.
"""
