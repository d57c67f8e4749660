from barnabas.clients.consumer.internals._consumer_record_pure import ConsumerRecord, ConsumerRecordReader

__all__ = ["ConsumerRecord", "ConsumerRecordReader"]
