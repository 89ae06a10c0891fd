"""Pages for people, beside the service's interface for programs."""
