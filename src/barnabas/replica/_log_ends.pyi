from barnabas.replica._log_ends_pure import at_end, changed, ends_of

__all__ = ["at_end", "changed", "ends_of"]
