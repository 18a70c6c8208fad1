"""Benchmarks of what the Python package does: `penstock bench NAME` runs `benchmarks/NAME.py`."""
