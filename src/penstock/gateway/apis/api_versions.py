"""ApiVersions (18), versions 0 to 4.

KIP-35: what is served, computed from the handlers that exist. KIP-511: a version that is not known is
answered with UNSUPPORTED_VERSION in the form of version 0, so that the client can step down.
"""

from __future__ import annotations

import re

from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.told import tell
from penstock.wire.kafka import ErrorCode
from penstock.wire.kafka.answers.api_versions import encode_api_versions

__all__ = ["API", "unsupported"]

_NAMED_FROM = 3
# KIP-511: name and version of the client software.
_LEGAL = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def _handle(request: Request, services: Services) -> Body:
    error = ErrorCode.NONE
    if request.version >= _NAMED_FROM:
        words = (request.body.client_software_name, request.body.client_software_version)
        error = ErrorCode.NONE if all(map(_LEGAL.fullmatch, words)) else ErrorCode.INVALID_REQUEST
    return (encode_api_versions(services.versions, request.version, error_code=tell(error)),)


def unsupported(services: Services) -> Body:
    """Answer a version that is not served."""
    return (encode_api_versions(services.versions, 0, error_code=tell(ErrorCode.UNSUPPORTED_VERSION)),)


API = Handler(18, 0, 4, _handle)
