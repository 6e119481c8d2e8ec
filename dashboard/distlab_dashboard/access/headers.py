"""The headers by which a browser protects the page: what it may load, run and be shown in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tornado.httputil import HTTPHeaders
from tornado.web import OutputTransform

from distlab_dashboard.access.hosts import Host

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
    # BokehJS compiles the code of its axes' labels, which this server writes, with `Function`.
    "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; "
    # Bokeh's charts write their own styles.
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'self' {frames}"
)
_NOTICE: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'self' {frames}"
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
        headers.pop("Server", None)  # names tornado's version
        return status_code, headers, chunk


def page_policy(origins: Iterable[Host], nonce: str = "") -> str:
    """Returns the policy of the page, or without a nonce that of a page without scripts.

    Frames may show it in pages of its own origin, as Jupyter's are, and of the named hosts.
    """
    frames = " ".join(map(str, origins))
    return (_PAGE if nonce else _NOTICE).format(nonce=nonce, frames=frames).rstrip()
