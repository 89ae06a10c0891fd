"""Requests and responses, defined once for the service, its client and the command line.

`requests` has requests, `responses` has responses, and `flags` has responses in the terms of
OFREP. The docstrings of classes describe their fields, also in the OpenAPI document.
"""
