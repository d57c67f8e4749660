"""Converts record batches to Arrow columns and back, with no Python object per record.

    arrow      the interface: tables from batches, batches from tables
    plan       which columns to create; early: columns that are filled while records are checked
    encoder    batches from columns; input: Arrow arrays of any layout as raw memory
    buffers, memory    the memory that columns are filled into

Start with `arrow`. The loops over bytes are in `barnabas._kernels.columns`.
"""
