"""Decides which requests may go on: by host name, by web page, by key; and which routes of an engine they may reach.

A web page in the user's browser can reach 127.0.0.1 (DNS rebinding, CSRF). It cannot forge ``Host``,
``Origin`` or ``Sec-Fetch-Site``, so those decide. Only ``scope["path"]`` is trusted, never a URL built from
the Host header (CVE-2026-49468).
"""

from __future__ import annotations

import hmac
import time
from functools import lru_cache
from ipaddress import ip_address, ip_network
from urllib.parse import unquote_plus, urlsplit

from starlette.types import Scope

from burnish.config.config import Config, is_loopback
from burnish.proxy.access.access import EVERYBODY, IN_ROLLOUT, NOBODY, STRANGER, Action, Identity
from burnish.proxy.access.carried import KEY, is_key
from burnish.proxy.access.paths import PAGE_FACTS, PAGE_FILES, purpose_of
from burnish.proxy.access.sign_in import (
    COOKIES,
    PROOF,
    SignIn,
    cookie_name,
    cookies_in,
    sign_in,
    signed_in_until,
)
from burnish.proxy.client_headers import KEY_HEADER
from burnish.proxy.http.errors import Conflict, Forbidden, Unauthorized
from burnish.proxy.http.headers import CREDENTIALS, Named, RawHeaders, first, secret_in

_NOT_IN_HOSTS = frozenset("/?#@\\")
"""They end or begin another part of a URL, and two readers could find two names."""
_KEY_HEADERS = (KEY_HEADER.encode(), *CREDENTIALS)
_SECRETS = frozenset({b"cookie", *CREDENTIALS})
"""Headers that may hold a key of burnish's own."""


class Guard:
    def __init__(self, config: Config) -> None:
        self._hosts = {host.lower() for host in config.allowed_hosts}
        self._origins = {origin.lower().rstrip("/") for origin in config.allowed_origins}
        self._proxies = [ip_network(network, strict=False) for network in config.trusted_proxies]
        self._open = not is_loopback(config.host)
        admin_key, api_key = config.admin_key, config.api_key
        self._keys: list[tuple[bytes, Identity]] = []
        """Those that a request may send, and who it then is."""
        if admin_key:
            admin = Identity("admin_key", administers=True)
            self._keys.append((admin_key.get_secret_value().encode(), admin))
        if api_key:
            # On a machine's own address the one key keeps other users of the machine out, so its owner holds it.
            caller = Identity("api_key", administers=not admin_key and not self._open)
            self._keys.append((api_key.get_secret_value().encode(), caller))
        self._without = None if api_key else NOBODY if admin_key else EVERYBODY
        """Who a request without any of the keys is; None: it is refused."""
        self._allow_management = config.allow_management
        self.knows_engine = False
        """True if burnish knows the engine's routes for inference. Then it gets no others."""
        # A client sends the same name with every request.
        self._is_ours = lru_cache(maxsize=64)(self._names_us)

    def check(
        self,
        path: str,
        headers: Named,
        *,
        public: bool = False,
        navigation: bool = False,
        proof: str | None = None,
        rollout_key: bool = False,
    ) -> Identity:
        """Return who asks. Raises Forbidden, Unauthorized, and InvalidRequest for a path with two meanings.

        ``public``: a key isn't needed. ``navigation``: the user may have followed a link on another site. ``proof``:
        that of the sign-in, if it isn't in a header. ``rollout_key``: the key of a rollout came, which somebody checks.
        """
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._is_ours(host):
            raise Forbidden(
                f"Host {host!r} is not a name of this machine. If it is yours, add it to allowed_hosts.",
                code="host_not_allowed",
            )
        by_browser = b"origin" in headers or b"sec-fetch-site" in headers
        if by_browser and not (navigation and headers.get(b"sec-fetch-dest") == b"document"):
            self._check_origin(host, headers)
        if PROOF in headers:
            proof = first(headers, PROOF)
        if rollout_key:
            identity = IN_ROLLOUT
        elif self._without and not self._keys and not proof:
            identity = self._without
        else:
            identity = self._identified(headers, host, proof, public=public)
        purpose_of(path)
        return identity

    def vouched(self, scope: Scope) -> bool:
        """Return whether a trusted proxy has sent a request, so that it has set the name of the user in it."""
        client = scope.get("client")
        if not self._proxies or client is None:
            return False
        try:
            address = ip_address(client[0])
        except ValueError:
            return False
        return any(address in network for network in self._proxies)

    @property
    def keys(self) -> list[str]:
        return [holder.key for _, holder in self._keys if holder.key]

    @property
    def needs_key(self) -> bool:
        return self._without is None

    def sign_in(self, key: str) -> tuple[Identity, SignIn]:
        """Return who has this key, and their cookie and proof. Raises Unauthorized, Conflict."""
        if not self._keys:
            raise Conflict("this burnish has no keys, so nobody needs to sign in", code="no_keys")
        holder = self._holder(key.encode())
        if holder is None:
            raise Unauthorized(
                f"this isn't burnish's {' or '.join(self.keys)}. You find it where burnish runs: in its configuration, "
                "or in BURNISH_API_KEY or BURNISH_ADMIN_KEY",
                code="wrong_key",
            )
        new_sign_in = sign_in(key.encode(), time.time())
        return holder._replace(signed_in_until=new_sign_in.until), new_sign_in

    def action_upstream(self, path: str, *, by_page: bool = False) -> Action:
        """Return what a request to the engine does. Raises Forbidden for routes that nobody may call.

        ``by_page``: the engine's own page only reads.
        """
        purpose = purpose_of(path)
        if by_page and path in PAGE_FACTS:
            return Action.READ
        if by_page and purpose == "other" and path.endswith(PAGE_FILES):
            return Action.ASK
        if purpose == "inference":
            return Action.ASK
        if purpose == "models" and self._allow_management:
            return Action.MANAGE_ENGINE
        if purpose == "other":
            if not self.knows_engine:
                return Action.ASK
            raise Forbidden(
                f"burnish knows no route {path} for inference at this engine: call the engine directly",
                code="management_route",
            )
        hint = ", or set allow_management" if purpose == "models" else ""
        raise Forbidden(
            f"{path} manages the engine, which burnish does itself. Use `burnish adapters`, or call the engine "
            f"directly{hint}.",
            code="management_route",
        )

    def without_key(self, headers: RawHeaders) -> RawHeaders:
        """Drop burnish's own keys from headers that go upstream."""
        return [header for header in headers if header[0] not in _SECRETS or not self._is_ours_only(*header)]

    def query_without_key(self, query: bytes) -> bytes:
        """Drop burnish's own keys from a query that goes upstream: clients of Google may put theirs there."""
        if not self._keys and KEY not in query:
            return query
        return b"&".join(pair for pair in query.split(b"&") if not self._is_secret(_value_of(pair)))

    def _is_secret(self, secret: bytes) -> bool:
        return is_key(secret) or self._holder(secret) is not None

    def _is_ours_only(self, name: bytes, content: bytes) -> bool:
        if name == b"cookie":
            # The page sends it. A browser adds those of all other servers on this host, and they are nobody's business.
            return COOKIES in content
        return (bool(self._keys) or KEY in content) and self._is_secret(secret_in(name, content))

    def _names_us(self, host: str) -> bool:
        if not _NOT_IN_HOSTS.isdisjoint(host):
            return False
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:  # half an IPv6 address
            return False
        # With a key, an attacker's page gains nothing from a name of its own.
        return is_loopback(name) or name in self._hosts or (self._open and self._without is None)

    def _check_origin(self, host: str, headers: Named) -> None:
        origin = first(headers, b"origin")
        if origin is None:
            if first(headers, b"sec-fetch-site") in ("cross-site", "same-site"):
                raise Forbidden("a web page of another site may not call burnish", code="origin_not_allowed")
            return
        if origin.lower() in self._origins or not crosses(headers):
            return
        raise Forbidden(
            f"Origin {origin!r} may not call burnish. If you trust that page, add it to burnish's configuration: "
            f'allowed_origins = ["{origin}"]',
            code="origin_not_allowed",
        )

    def _identified(self, headers: Named, host: str, proof: str | None, *, public: bool) -> Identity:
        """Return who the keys of a request say it is; of several keys, the one that may most."""
        secrets = [secret_in(name, headers[name]) for name in _KEY_HEADERS if name in headers]
        holders = [holder for secret in secrets if (holder := self._holder(secret))]
        if proof:
            cookies = cookies_in(first(headers, b"cookie") or "", cookie_name(host))
            holders += [self._signed_in(cookies, proof)]
        if holders:
            return max(holders, key=lambda holder: holder.administers)
        if self._without:
            return self._without
        if public:
            return STRANGER
        raise Unauthorized(
            "this burnish needs its api_key: send it as Authorization: Bearer <key>, or in x-burnish-key."
        )

    def _signed_in(self, cookies: list[str], proof: str) -> Identity:
        """Return who signed in. Raises Unauthorized if that has ended: the page must not go on as somebody else."""
        moment = time.time()
        for key, holder in self._keys:
            for cookie in cookies:
                if until := signed_in_until(key, cookie, proof, moment):
                    return holder._replace(signed_in_until=until)
        raise Unauthorized(
            "you are no longer signed in: it lasts 30 days, and ends if burnish's key changes. Sign in again",
            code="signed_out",
        )

    def _holder(self, secret: bytes) -> Identity | None:
        return next((holder for key, holder in self._keys if hmac.compare_digest(secret, key)), None)


def crosses(headers: Named) -> bool:
    """Return whether a web page of another address asks."""
    origin, host = first(headers, b"origin"), first(headers, b"host") or ""
    return origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower())


def _value_of(member: bytes) -> bytes:
    """Return the value of a member of a query, decoded."""
    return unquote_plus(member.partition(b"=")[2].decode("latin-1"), "latin-1").encode("latin-1")
