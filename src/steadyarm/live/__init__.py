"""Live tests: assign variants, record rewards, decide, and report results."""
