"""Requests and responses, defined once for the service, its client and the command line.

`requests` has what is sent to the service, `responses` what comes back. Fields are described in
the docstrings of their classes; the OpenAPI document and the reference are made from these.
"""
