"""Access to the server: its hosts and token, protecting headers, and limits of connections.

A server for strangers belongs behind a reverse proxy: docs/security.md names what this package
leaves to it.
"""
