"""The configuration of a node: definitions, parsed values, and changes at run time."""
