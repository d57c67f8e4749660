from barnabas.metrics.yammer._buckets_pure import BucketTable, Totals

__all__ = ["BucketTable", "Totals"]
