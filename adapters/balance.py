"""Which of several equal servers gets the next request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


class Balance:
    """Counts what is in flight; the server with the least gets the next request, equals take turns."""

    def __init__(self) -> None:
        self._in_flight: Counter[str] = Counter()
        self._turn = 0

    def pick(self, urls: Sequence[str]) -> str:
        """Choose one of the URLs (at least one) and count a request on it; ``done`` must follow."""
        self._turn += 1
        start = self._turn % len(urls)
        url = min((*urls[start:], *urls[:start]), key=self._in_flight.__getitem__)
        self._in_flight[url] += 1
        return url

    def done(self, url: str) -> None:
        """Say that a request has ended."""
        self._in_flight[url] -= 1
        if not self._in_flight[url]:
            del self._in_flight[url]
