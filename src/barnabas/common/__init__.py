"""What every layer shares: errors, identifiers, configuration, clocks."""
