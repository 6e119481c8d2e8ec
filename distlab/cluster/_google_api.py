"""Google's API client and metadata server, asked when no client was given."""

from __future__ import annotations

import http.client
import importlib
import os
from typing import Any

from distlab.errors import ClusterError, MissingExtraError

_SECONDS = 5


def build_service(name: str, credentials: Any, discovery_url: str | None = None) -> Any:
    """Returns Google's client for version 1 of an API.

    Args:
      name: the API, such as `"compute"`.
      credentials: Google's credentials object; `"default"` or None finds them
        in the environment.
      discovery_url: where the API is described, when not at its usual place.

    Raises:
      MissingExtraError: when the package google-api-python-client is not
        installed.
      ClusterError: when there are no credentials.
    """
    try:
        discovery: Any = importlib.import_module("googleapiclient.discovery")
        auth: Any = importlib.import_module("google.auth.exceptions")
    except ImportError as error:
        raise MissingExtraError(
            f"the Google API '{name}' is asked with the package google-api-python-client, which "
            "is not installed. Install it with: pip install google-api-python-client; or pass "
            "service="
        ) from error
    options = {"discoveryServiceUrl": discovery_url} if discovery_url else {}
    given = None if credentials == "default" else credentials
    try:
        return discovery.build(name, "v1", credentials=given, cache_discovery=False, **options)
    except auth.GoogleAuthError as error:
        raise ClusterError(
            f"the Google API '{name}' needs credentials: {error} Or pass credentials=."
        ) from error


def metadata(path: str) -> str:
    """Returns what the metadata server of a Google Cloud machine says.

    Args:
      path: such as `"project/project-id"`.

    Raises:
      ClusterError: when it does not answer within 5 seconds: this is then no
        machine of Google Cloud.
    """
    host = os.environ.get("GCE_METADATA_HOST") or os.environ.get("GCE_METADATA_IP")
    host = host or "metadata.google.internal"
    try:
        connection = http.client.HTTPConnection(host, timeout=_SECONDS)
        try:
            headers = {"Metadata-Flavor": "Google"}
            connection.request("GET", f"/computeMetadata/v1/{path}", headers=headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as error:
        raise ClusterError(
            f"the metadata server {host} did not say what {path} is ({error}), so this is no "
            "machine of Google Cloud. Pass project= and zone=."
        ) from error
    if response.status != http.HTTPStatus.OK:
        raise ClusterError(f"the metadata server {host} answered {response.status} to {path}")
    return text
