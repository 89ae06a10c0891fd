"""Real servers and real clients, for tests and benchmarks of the live service."""
