"""Code that all clients share: settings, bootstrap addresses, metadata."""
