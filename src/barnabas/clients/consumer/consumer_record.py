"""A consumed record, and the reader that makes them from a batch."""

from __future__ import annotations

from barnabas._kernels import consumer_record

ConsumerRecord = consumer_record.ConsumerRecord
ConsumerRecordReader = consumer_record.ConsumerRecordReader

__all__ = ["ConsumerRecord", "ConsumerRecordReader"]
