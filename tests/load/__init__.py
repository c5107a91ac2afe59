"""The load test: `make load`, or `python -m tests.load --help`."""
