"""The controller's request handlers, by family."""
