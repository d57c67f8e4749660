"""The metadata of the cluster as every node sees it: images, the changes between them, and what is answered from them.

The controller appends records to ``__cluster_metadata``; this package turns them into something to look things up in::

    committed batches ──► MetadataLoader ──► MetadataDelta ──► MetadataImage ──► MetadataCache ──► answers
                              │                   │                 │
                              └────────── MetadataPublishers, in order ────► replicas, configs, quotas, ...

An *image* is everything that is known as of one offset. It never changes, so any thread reads it without a lock, and
sees one moment of the cluster, never a mixture of two. A *delta* collects records on top of an image and makes the next
one, which shares with its predecessor all that stayed as it was. *Publishers* are told of each step: the delta says
what to do, the image how things are then.
"""
