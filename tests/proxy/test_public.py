from __future__ import annotations

from burnish.proxy.http import errors


def test_every_error_is_the_standard_librarys_too_and_says_its_status() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    for kind in kinds:
        assert issubclass(kind, errors.BurnishError)
        assert kind is errors.BurnishError or len(kind.__mro__) > len(errors.BurnishError.__mro__) + 1
        assert 400 <= kind.status < 600
        envelope = kind("what to do", param="field").envelope()["error"]
        assert (envelope["message"], envelope["param"]) == ("what to do", "field")
