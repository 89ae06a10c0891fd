"""The service: live experiments over HTTP; `steadyarm.service.app.create_app` makes one."""

__all__: list[str] = []
