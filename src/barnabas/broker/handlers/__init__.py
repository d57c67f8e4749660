"""The handlers of the broker's APIs, by family."""
