"""Experiments in a database: SQLite or PostgreSQL, behind SQLAlchemy."""
