"""Run by Alembic, inside the transaction of whoever upgrades."""

from alembic import context

from steadyarm.storages.schema import VERSION_TABLE, metadata

if hasattr(context, "config"):  # not when merely imported, as by a tool that collects doctests
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=metadata,
        version_table=VERSION_TABLE,
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()
