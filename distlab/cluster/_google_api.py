"""Google's API client and metadata server, used when no client was passed."""

from __future__ import annotations

import http.client
import importlib
import os
import urllib.request
from typing import Any

from distlab.errors import ClusterError, MissingExtraError

_SECONDS = 5


def build_service(name: str, credentials: Any, discovery_url: str | None = None) -> Any:
    """Returns Google's client for version 1 of an API."""
    try:
        discovery: Any = importlib.import_module("googleapiclient.discovery")
    except ImportError as error:
        raise MissingExtraError(
            f"The Google API '{name}' is called with the package google-api-python-client, which "
            "is not installed. Install it with: pip install google-api-python-client; or pass "
            "service="
        ) from error
    options = {"discoveryServiceUrl": discovery_url} if discovery_url else {}
    given = None if credentials == "default" else credentials
    return discovery.build(name, "v1", credentials=given, cache_discovery=False, **options)


def metadata(path: str) -> str:
    """Returns a value of a Google Cloud machine's metadata server."""
    host = os.environ.get("GCE_METADATA_HOST") or os.environ.get("GCE_METADATA_IP")
    host = host or "metadata.google.internal"
    request = urllib.request.Request(
        f"http://{host}/computeMetadata/v1/{path}", headers={"Metadata-Flavor": "Google"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:  # noqa: S310
            text: str = response.read().decode()
    except (OSError, http.client.HTTPException) as error:
        raise ClusterError(
            f"The metadata server {host} did not return {path} ({error}), so this machine is not "
            "in Google Cloud. Pass project= and zone=."
        ) from error
    return text
