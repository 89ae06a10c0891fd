"""Live tests: assign variants, record rewards, decide, and say what was found."""
