"""The runtime of every coordinator: a single-writer event loop per partition of its internal topic."""
