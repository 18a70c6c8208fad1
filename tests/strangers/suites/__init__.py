"""One module for each suite, with its `SUITE`."""
