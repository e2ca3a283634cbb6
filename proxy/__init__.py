"""The request path and everything that a client can call.

Start at ``app.running`` (composition) and ``serve.serve``. Only the errors are imported here, so that a command of
the CLI does not pay for the server.
"""

from burnish.proxy.http.errors import (
    BodyTooLarge,
    BurnishError,
    ConfigError,
    Conflict,
    Forbidden,
    HeadersTooLarge,
    InvalidRequest,
    NotFound,
    RequestTimeout,
    ServiceError,
    ServiceUnavailable,
    Unauthorized,
    Unavailable,
    Unprocessable,
    UnsupportedMediaType,
    UpstreamTimeout,
    UpstreamUnreachable,
)

__all__ = [
    "BodyTooLarge",
    "BurnishError",
    "ConfigError",
    "Conflict",
    "Forbidden",
    "HeadersTooLarge",
    "InvalidRequest",
    "NotFound",
    "RequestTimeout",
    "ServiceError",
    "ServiceUnavailable",
    "Unauthorized",
    "Unavailable",
    "Unprocessable",
    "UnsupportedMediaType",
    "UpstreamTimeout",
    "UpstreamUnreachable",
]
