"""The command line: one file per command, thin."""

__all__: list[str] = []
