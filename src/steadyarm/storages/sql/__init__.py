"""Experiments in a database: SQLite or PostgreSQL, behind SQLAlchemy."""

__all__: list[str] = []
