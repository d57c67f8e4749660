"""The command line: ``barnabas``, with one module for each group of commands."""
