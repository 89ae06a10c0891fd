"""Settings for all tests: the same examples every time, no deadline on a noisy machine."""

from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("steady")
