from barnabas.network._reactor_pure import ChannelCore, SelectorCore, SelectorStats, SendCore

__all__ = ["ChannelCore", "SelectorCore", "SelectorStats", "SendCore"]
