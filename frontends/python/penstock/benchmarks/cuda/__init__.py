"""Benchmarks that run in place of those of the same name when `--device` names a CUDA device."""
