"""The arguments of a request's address."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from urllib.parse import unquote_plus

from tornado.httputil import HTTPServerRequest

TOKEN = "token"  # noqa: S105 - the argument's name
ROLE = "role"
"""The argument by which the gate passes on what a page may do; it removes any that was sent."""


def argument(arguments: Mapping[str, Sequence[bytes]], name: str) -> str | None:
    """Returns the first value of an argument exactly as it was given, None when it was not."""
    return next(iter(values(arguments, name)), None)


def values(arguments: Mapping[str, Sequence[bytes]], name: str) -> list[str]:
    """Returns all values of an argument exactly as they were given."""
    return [given.decode("utf-8", "replace") for given in arguments.get(name, ())]


def take_token(request: HTTPServerRequest) -> str | None:
    """Returns the token of a request, and removes it: Bokeh's pages and logs contain the rest."""
    given = argument(request.query_arguments, TOKEN)
    keep_arguments(request, {*request.query_arguments} - {TOKEN})
    scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return given
    del request.headers["Authorization"]
    # tornado reads each byte of a header as a letter
    return given or bearer.strip(" \t").encode("latin-1").decode("utf-8", "replace")


def keep_arguments(request: HTTPServerRequest, names: Collection[str]) -> None:
    """Removes all other arguments from a request."""
    for arguments in (request.query_arguments, request.arguments):
        for name in {*arguments} - {*names}:
            del arguments[name]
    parts = (part for part in request.query.split("&") if _name_of(part) in names)
    request.query = "&".join(parts)
    request.uri = f"{request.path}?{request.query}" if request.query else request.path


def _name_of(part: str) -> str:
    return unquote_plus(part.partition("=")[0])
