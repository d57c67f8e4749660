"""The engine under every coordinator: one single-writer event loop for each partition that it is responsible for."""
