"""Errors of the proxy, each with its HTTP status.

- BurnishError                          500
    - InvalidRequest (ValueError)       400
    - Unauthorized (PermissionError)    401
    - Forbidden (PermissionError)       403
    - NotFound (LookupError)            404
    - Conflict (ValueError)             409
    - RequestTimeout (TimeoutError)     408
    - BodyTooLarge (ValueError)         413
    - UnsupportedMediaType (ValueError) 415
    - Unprocessable (ValueError)        422
    - HeadersTooLarge (ValueError)      431
    - UpstreamUnreachable (ConnectionError) 502
    - Unavailable (RuntimeError)        503
    - UpstreamTimeout (TimeoutError)    504
    - ConfigError (ValueError)          (start-up only)
    - ServiceError (RuntimeError)       (`burnish service` only)
        - ServiceUnavailable (OSError)
"""

from __future__ import annotations

from typing import Any, ClassVar


class BurnishError(Exception):
    """The message tells a user what happened, what was expected, and what to do."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, **details: Any
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        """The wrong field of the request."""
        self.reason = code or self.code
        self.details = details
        """Further keys of the envelope, e.g. the candidates for an ambiguous ID."""
        self.headers: list[tuple[bytes, bytes]] = []
        """Headers to add to the response."""

    def envelope(self) -> dict[str, Any]:
        """Return the OpenAI error envelope."""
        body = {"message": self.message, "type": self.type, "param": self.param, "code": self.reason}
        return {"error": body | self.details}


class InvalidRequest(BurnishError, ValueError):
    status, type, code = 400, "invalid_request_error", "invalid_request"


class Unauthorized(BurnishError, PermissionError):
    """The key is missing or wrong."""

    status, type, code = 401, "authentication_error", "invalid_api_key"

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(message, **more)
        # The SDKs of OpenAI and Anthropic obey this header. Without it, Claude Code retries for minutes.
        self.headers.append((b"x-should-retry", b"false"))


class Forbidden(BurnishError, PermissionError):
    status, type, code = 403, "permission_error", "forbidden"


class NotFound(BurnishError, LookupError):
    status, type, code = 404, "invalid_request_error", "not_found"


class Conflict(BurnishError, ValueError):
    """The request is ambiguous, or contradicts an earlier one."""

    status, type, code = 409, "invalid_request_error", "conflict"


class RequestTimeout(BurnishError, TimeoutError):
    """The client did not send the whole request in time."""

    status, type, code = 408, "invalid_request_error", "request_timeout"


class BodyTooLarge(BurnishError, ValueError):
    status, type, code = 413, "invalid_request_error", "body_too_large"


class UnsupportedMediaType(BurnishError, ValueError):
    status, type, code = 415, "invalid_request_error", "unsupported_media_type"


class Unprocessable(BurnishError, ValueError):
    """The JSON is valid, but a field has an invalid value."""

    status, type, code = 422, "invalid_request_error", "unprocessable"


class HeadersTooLarge(BurnishError, ValueError):
    status, type, code = 431, "invalid_request_error", "headers_too_large"


class UpstreamUnreachable(BurnishError, ConnectionError):
    """No connection to the upstream, or it broke off before the answer."""

    status, type, code = 502, "upstream_error", "upstream_unreachable"


class Unavailable(BurnishError, RuntimeError):
    """A retry may succeed."""

    status, type, code = 503, "server_error", "unavailable"


class UpstreamTimeout(BurnishError, TimeoutError):
    status, type, code = 504, "upstream_error", "upstream_timeout"


class ConfigError(BurnishError, ValueError):
    """The message names the wrong key, its value and the fix."""

    code = "invalid_config"


class ServiceError(BurnishError, RuntimeError):
    """burnish can't be installed, removed or found as a service."""

    code = "service"


class ServiceUnavailable(ServiceError, OSError):
    """Nothing on this machine can start programs for its users, or it doesn't answer."""
