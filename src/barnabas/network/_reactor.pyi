from barnabas.network._reactor_pure import ChannelCore, FileRegion, SelectorCore, SelectorStats, SendCore

__all__ = ["ChannelCore", "FileRegion", "SelectorCore", "SelectorStats", "SendCore"]
