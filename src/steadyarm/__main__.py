"""`python -m steadyarm`: the command line."""

from steadyarm.cli.main import run

run()
