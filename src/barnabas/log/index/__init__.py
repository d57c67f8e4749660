"""Indexes: sorted arrays in files, which map an offset or a timestamp to a position.

    abstract_index       the array in a file, and its binary search
    offset_index         offset to position; time_index: timestamp to offset
    transaction_index    the aborted transactions of a segment
    lazy_index           an index that is opened on first use

Start with `offset_index`.
"""
