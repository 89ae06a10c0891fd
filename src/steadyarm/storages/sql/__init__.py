"""Storages in SQLite and PostgreSQL, with SQLAlchemy."""

from steadyarm.errors import MissingExtraError

try:
    import sqlalchemy  # noqa: F401  # only to see whether it is installed
except ImportError as error:
    raise MissingExtraError(
        f"storages in databases need {error.name}; install it with: pip install 'steadyarm[live]'"
    ) from None
