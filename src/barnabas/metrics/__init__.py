"""Metrics: what the broker and the clients count, and the arithmetic that quotas are enforced with.

Kafka has two metric systems, and so does this package, because the dashboards, the tools and the quota rules of a Kafka
cluster rely on the names and the arithmetic of both:

* Kafka's own, from which quotas are built: a `sensor.Sensor` feeds each recorded value to its `stats`, and
  `registry.Metrics` keeps sensors and metrics by name. What a quota measures is a `stats.Rate` or, for controller
  mutations, a `stats.TokenBucket`.
* The one its broker took from the Yammer library, in `yammer`: histograms, meters, timers and gauges under JMX names
  such as ``kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce``.

`prometheus.render_prometheus` shows both as text, under the names that Kafka dashboards ask for.

Time is always given: in milliseconds of the date for sensors, as in Kafka, and in steady nanoseconds for `yammer`.
"""
