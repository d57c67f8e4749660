"""Histograms, meters, timers and gauges of the broker: the metrics that Kafka keeps with the Yammer library.

Names, attributes and exponentially weighted rates are those of Yammer Metrics 2.2, which dashboards of Kafka rely on. A
histogram weighs past values differently, as described in `histogram`.
"""
