"""The handlers of the controller, by family."""
