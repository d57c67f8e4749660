"""Histograms, meters, timers and gauges of the broker: the metrics that Kafka keeps with the Yammer library.

Names, attributes and the exponentially weighted rates are those of Yammer Metrics 2.2, which Kafka is bound to by its
dashboards. What differs is how a histogram remembers the past, told in `histogram`.
"""
