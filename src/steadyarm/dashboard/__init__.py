"""Pages for people, beside the service's interface for programs."""

__all__: list[str] = []
