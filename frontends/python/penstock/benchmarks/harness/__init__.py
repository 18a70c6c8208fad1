"""Code that the benchmarks in Python share; bench/harness is the same for those in C++."""
