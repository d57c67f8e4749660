"""What all clients share: settings, bootstrap addresses, metadata."""
