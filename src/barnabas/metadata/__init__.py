"""The metadata of the cluster on every node: images, deltas between them, and responses from them.

The controller appends records to ``__cluster_metadata``; this package turns them into data that can be looked up::

    committed batches ──► MetadataLoader ──► MetadataDelta ──► MetadataImage ──► MetadataCache ──► responses
                              │                   │                 │
                              └────────── MetadataPublishers, in order ────► replicas, configs, quotas, ...

An *image* is the state of the cluster at one offset. It is immutable, so any thread reads it without a lock, and sees
one consistent state. A *delta* collects records on top of an image and creates the next one, which shares everything
unchanged with its predecessor. *Publishers* are called at each step: the delta has the changes, the image the new
state.
"""
