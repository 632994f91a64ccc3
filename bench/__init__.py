"""Benchmarks and the load they put on: what is measured by hand or by `make bench`, never asserted in tests."""
