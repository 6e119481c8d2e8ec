"""The arguments of a page's address."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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
        _keep(request, lambda other: other != name)
    return value


def keep_arguments(request: HTTPServerRequest, names: Collection[str]) -> None:
    """Takes all other arguments out of a request."""
    _keep(request, lambda name: name in names)


def take_bearer(request: HTTPServerRequest) -> str | None:
    """Returns the token of an `Authorization` header, and takes the header out of a request."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    del request.headers["Authorization"]
    given = token.strip(" \t")
    try:  # tornado reads each byte of a header as a letter
        return given.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return given


def _keep(request: HTTPServerRequest, stays: Callable[[str], bool]) -> None:
    for arguments in (request.query_arguments, request.arguments):
        for name in [name for name in arguments if not stays(name)]:
            del arguments[name]
    parts = request.query.split("&")
    request.query = "&".join(part for part in parts if stays(_name_of(part)))
    request.uri = f"{request.path}?{request.query}" if request.query else request.path


def _name_of(part: str) -> str:
    return unquote_plus(part.partition("=")[0])
