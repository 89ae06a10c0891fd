"""Requests and responses, defined once for the service, its client and the command line.

`requests` has what is sent to the service, `responses` and `results` what comes back, `flags` the
same in the words of OFREP. Fields are described in the docstrings of their classes; the OpenAPI
document and the reference are made from these.
"""
