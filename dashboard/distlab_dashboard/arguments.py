"""The arguments of a page's address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote_plus

from tornado.httputil import HTTPServerRequest


def argument(arguments: Mapping[str, Sequence[bytes]], name: str) -> str | None:
    """Returns the first value of an argument exactly as it was given, None when it was not."""
    given = arguments.get(name)
    return given[0].decode("utf-8", "replace") if given else None


def take_argument(request: HTTPServerRequest, name: str) -> str | None:
    """Returns an argument, and takes it out of a request: Bokeh's page and logs tell the rest."""
    value = argument(request.query_arguments, name)
    if value is not None:
        del request.query_arguments[name]
        request.arguments.pop(name, None)
        others = (part for part in request.query.split("&") if _name_of(part) != name)
        request.query = "&".join(others)
        request.uri = f"{request.path}?{request.query}" if request.query else request.path
    return value


def take_bearer(request: HTTPServerRequest) -> str | None:
    """Returns the token of an `Authorization` header, and takes the header out of a request."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    del request.headers["Authorization"]
    return token.strip()


def _name_of(part: str) -> str:
    return unquote_plus(part.partition("=")[0])
