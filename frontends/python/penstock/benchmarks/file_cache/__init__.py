"""The rows of the benchmark `gmfs`: what a file cache in device memory costs and wins."""
