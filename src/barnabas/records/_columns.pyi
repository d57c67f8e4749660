from barnabas.records._columns_pure import BinaryColumn, BinarySink, ColumnSink, Encoder, HeaderColumn, Section

__all__ = ["BinaryColumn", "BinarySink", "ColumnSink", "Encoder", "HeaderColumn", "Section"]
