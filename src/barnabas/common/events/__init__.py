"""Event queues: work that one thread runs in order, so that its state needs no lock.

    event_queue             the queue of the controller and of a broker's managers: ordered, deferred, with deadlines
    event_thread            a thread that runs functions one after the other
    deferred_event_queue    responses that wait until their records are committed
    gathering               collects one value per key, then calls back once

Start with `event_queue`.
"""
