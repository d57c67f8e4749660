"""Utilities for every layer: errors, identifiers, configuration, clocks."""
