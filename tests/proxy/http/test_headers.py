from __future__ import annotations

from burnish.proxy.http.headers import by_name, first, to_client, to_upstream


def test_what_belongs_to_one_hop_stays_and_so_does_what_connection_names() -> None:
    headers = [
        (b"Connection", b"keep-alive, X-Private"),
        (b"x-private", b"1"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Set-Cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"Date", b"now"),
    ]
    assert to_client(headers) == [(b"Set-Cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"Date", b"now")]


def test_headers_for_burnish_do_not_go_upstream() -> None:
    headers = [
        (b"host", b"localhost"),
        (b"authorization", b"Bearer sk"),
        (b"x-burnish-session", b"s"),
        (b"X-Burnish-User", b"u"),
        (b"content-length", b"3"),
    ]
    assert to_upstream(headers, b"x-burnish-") == [(b"authorization", b"Bearer sk")]


def test_the_first_name_that_is_present_wins() -> None:
    headers = by_name([(b"B", b"2"), (b"a", b"1"), (b"a", b"3")])
    assert first(headers, b"a", b"b") == "1"
    assert first(headers, b"c", b"b") == "2"
    assert first({}, b"a") is None
