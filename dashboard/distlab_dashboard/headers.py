"""The headers by which a browser protects the page: what it may load, run and be shown in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tornado.httputil import HTTPHeaders
from tornado.web import OutputTransform

from distlab_dashboard.hosts import Host

POLICY: Final = "Content-Security-Policy"

_EVERY_ANSWER: Final = {
    # What is no page runs nothing and is shown nowhere, should a browser take it for one.
    POLICY: "default-src 'none'; frame-ancestors 'none'",
    # A page of another site that has opened this one can't lead its window elsewhere.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_PAGE: Final = (
    "default-src 'none'",
    # BokehJS compiles the code of its axes' labels, which this server writes, with `Function`.
    "script-src 'self' 'nonce-{nonce}' 'unsafe-eval'",
    # Bokeh's charts write their own styles.
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data: blob:",
    "font-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'self'",
)
_REFUSAL: Final = (
    "default-src 'none'",
    "style-src 'unsafe-inline'",
    "base-uri 'none'",
    "form-action 'self'",
)


class SafeHeaders(OutputTransform):
    """Adds the headers to every answer that does not set them itself."""

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        """Adds them before the first part is sent; tornado calls it."""
        del finishing
        for name, value in _EVERY_ANSWER.items():
            if name not in headers:
                headers[name] = value
        # Of tornado's version, a stranger needs to know nothing.
        headers.pop("Server", None)
        return status_code, headers, chunk


def page_policy(nonce: str, origins: Iterable[Host]) -> str:
    """Returns the policy of the page."""
    return "; ".join([*_PAGE, _frames(origins)]).format(nonce=nonce)


def refusal_policy(origins: Iterable[Host]) -> str:
    """Returns the policy of a page without scripts."""
    return "; ".join([*_REFUSAL, _frames(origins)])


def _frames(origins: Iterable[Host]) -> str:
    """Returns who may show the page in a frame: pages of the same origin, as Jupyter's are."""
    named = (one.name if one.port is None else f"{one.name}:{one.port}" for one in origins)
    return " ".join(["frame-ancestors 'self'", *named])
