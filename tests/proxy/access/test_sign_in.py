"""A cookie counts only with its proof, its key, and within its time."""

from __future__ import annotations

import pytest

from burnish.proxy.access.sign_in import (
    CLOCK_S,
    LIFETIME_S,
    cookie_name,
    cookies_in,
    sign_in,
    signed_in_until,
)

KEY, NOW = b"geheim", 1_000_000.0
MADE = sign_in(KEY, NOW)


def until(*, key: bytes = KEY, cookie: str = MADE.cookie, proof: str = MADE.proof, now: float = NOW):
    return signed_in_until(key, cookie, proof, now)


@pytest.mark.parametrize(
    ("now", "counts"),
    [
        (NOW, True),
        (NOW + LIFETIME_S - 1, True),
        (NOW + LIFETIME_S, False),
        (NOW - CLOCK_S + 1, True),  # the clock was set back since, a little
        (NOW - CLOCK_S - 1, False),  # further back it would hold for months
        (0.0, False),
    ],
)
def test_it_holds_for_its_lifetime_by_our_clock(now: float, counts: bool) -> None:
    assert (until(now=now) == MADE.until) is counts
    assert (until(now=now) is None) is not counts


def test_neither_half_counts_alone_nor_with_another_sign_ins() -> None:
    other = sign_in(KEY, NOW)
    assert other.proof != MADE.proof
    for cookie, proof in (
        (MADE.cookie, ""),
        ("", MADE.proof),
        (MADE.cookie, other.proof),
        (MADE.cookie, MADE.cookie.rpartition(".")[2]),  # the cookie's own signature
        (f"{MADE.cookie.rpartition('.')[0]}.{MADE.proof}", MADE.proof),
    ):
        assert until(cookie=cookie, proof=proof) is None


def test_another_key_and_every_change_of_a_character_end_it() -> None:
    assert until(key=b"geheim2") is None
    for at in range(len(MADE.cookie)):
        wrong = "1" if MADE.cookie[at] == "0" else "0"
        assert until(cookie=MADE.cookie[:at] + wrong + MADE.cookie[at + 1 :]) in (None,), at
    for hostile in ("", ".", "..", "9" * 5000, "x.y.z", "-1.a.b", "ü.é.ñ", "\udcff"):
        assert until(cookie=hostile) is None
        assert until(proof=hostile) is None


def test_burnishes_on_several_ports_of_a_host_have_cookies_of_their_own() -> None:
    hosts = ("127.0.0.1:8787", "localhost:8788", "[::1]:9000", "box.lan", "[::1]")
    assert [cookie_name(host).removeprefix("burnish_") for host in hosts] == ["8787", "8788", "9000", "", ""]
    header = "a=b; burnish_8787=one; burnish_878=no;burnish_8787=two=; x"
    assert cookies_in(header, "burnish_8787") == ["one", "two="]
