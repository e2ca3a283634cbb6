"""What can go wrong on the way of a request, and the HTTP status that says so.

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
"""

from __future__ import annotations

from typing import Any, ClassVar


class BurnishError(Exception):
    """Root of this room's errors; the message says what was wrong and what to do next."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, **details: Any
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        """Field of the request that is wrong."""
        self.reason = code or self.code
        self.details = details
        """Further keys of the envelope, e.g. the candidates of an ambiguous target."""
        self.headers: list[tuple[bytes, bytes]] = []
        """Headers of the response that reports it."""

    def envelope(self) -> dict[str, Any]:
        """Return the OpenAI error envelope."""
        body = {"message": self.message, "type": self.type, "param": self.param, "code": self.reason}
        return {"error": body | self.details}


class InvalidRequest(BurnishError, ValueError):
    """The request is malformed."""

    status, type, code = 400, "invalid_request_error", "invalid_request"


class Unauthorized(BurnishError, PermissionError):
    """No key, or a wrong one."""

    status, type, code = 401, "authentication_error", "invalid_api_key"

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(message, **more)
        # What the SDKs of OpenAI and Anthropic heed; Claude Code tries again for minutes otherwise.
        self.headers.append((b"x-should-retry", b"false"))


class Forbidden(BurnishError, PermissionError):
    """Understood, and refused."""

    status, type, code = 403, "permission_error", "forbidden"


class NotFound(BurnishError, LookupError):
    """There is no such thing."""

    status, type, code = 404, "invalid_request_error", "not_found"


class Conflict(BurnishError, ValueError):
    """The request fits more than one thing, or contradicts an earlier one."""

    status, type, code = 409, "invalid_request_error", "conflict"


class RequestTimeout(BurnishError, TimeoutError):
    """The client did not send the whole of its request."""

    status, type, code = 408, "invalid_request_error", "request_timeout"


class BodyTooLarge(BurnishError, ValueError):
    """The body exceeds the configured limit."""

    status, type, code = 413, "invalid_request_error", "body_too_large"


class UnsupportedMediaType(BurnishError, ValueError):
    """Our own routes take JSON only."""

    status, type, code = 415, "invalid_request_error", "unsupported_media_type"


class Unprocessable(BurnishError, ValueError):
    """Well-formed, but a field has a value that cannot be."""

    status, type, code = 422, "invalid_request_error", "unprocessable"


class HeadersTooLarge(BurnishError, ValueError):
    """The head of a request is longer than any that makes sense."""

    status, type, code = 431, "invalid_request_error", "headers_too_large"


class UpstreamUnreachable(BurnishError, ConnectionError):
    """The upstream could not be reached, or broke off before it answered."""

    status, type, code = 502, "upstream_error", "upstream_unreachable"


class Unavailable(BurnishError, RuntimeError):
    """Not possible right now; try again later."""

    status, type, code = 503, "server_error", "unavailable"


class UpstreamTimeout(BurnishError, TimeoutError):
    """The upstream did not answer in time."""

    status, type, code = 504, "upstream_error", "upstream_timeout"


class ConfigError(BurnishError, ValueError):
    """The configuration names a key, a value and the fix."""

    code = "invalid_config"
