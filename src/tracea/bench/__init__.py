"""Benchmarks: suites of problems, the peers at their best, and interleaved ratios against them."""
