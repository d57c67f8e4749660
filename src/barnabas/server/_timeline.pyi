from barnabas.server._timeline_pure import NOT_SET, Timeline, TimelineRecorder

__all__ = ["NOT_SET", "Timeline", "TimelineRecorder"]
