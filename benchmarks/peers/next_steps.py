"""What would come next where a target is not reached. Kept by hand, from what the profiles of such cases have shown."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

STEPS: Final = (
    (
        "start-up",
        "*",
        "nearly all of it is imports: fewer modules before the first answer, or byte code from a single archive",
    ),
    (
        "idle-memory",
        "*",
        "modules and their code are most of it: those that only some brokers use, loaded when they are used first",
    ),
    (
        "produce-*",
        "*",
        (
            "about two thirds is the kernel copying records out of the socket and into the file, which every broker has"
            " it do; the interpreter's part is what can be less: the append of a plain batch as one compiled call"
        ),
    ),
    (
        "consume-librdkafka-*",
        "throughput",
        (
            "compare with the figure without the client's pauses: it stops asking when its queue is full"
            " (`fetch.queue.backoff.ms`), more often the quicker it is served"
        ),
    ),
    (
        "consume-*",
        "*",
        (
            "half of it is `sendfile`, which on loopback does the receiver's part too; then the interpreter in each"
            " fetch: a compiled way from the request to the sends"
        ),
    ),
    (
        "latency-*",
        "p50",
        "the way from an append to the fetch that waits for it: fewer threads and fewer bytecodes on it",
    ),
    (
        "latency-*",
        "p99*",
        (
            "threads that take the interpreter from the one that serves requests: less work in the background ones,"
            " done in smaller parts"
        ),
    ),
)
OTHERWISE: Final = "what the profile has at its top"


def next_step(case: str, metric: str) -> str:
    """Of the first pattern of a case and a metric that fits."""
    fitting = (text for cases, metrics, text in STEPS if fnmatchcase(case, cases) and fnmatchcase(metric, metrics))
    return next(fitting, OTHERWISE)
