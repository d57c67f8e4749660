from barnabas.metrics.yammer._meter_pure import EventCount

__all__ = ["EventCount"]
