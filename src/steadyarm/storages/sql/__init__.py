"""Storages in SQLite and PostgreSQL, with SQLAlchemy."""
