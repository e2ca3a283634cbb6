from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from burnish.adapters.balance import Balance


def test_equals_take_turns() -> None:
    balance = Balance()
    picked = []
    for _ in range(6):
        picked.append(balance.pick(["a", "b", "c"]))
        balance.done(picked[-1])
    assert sorted(picked) == ["a", "a", "b", "b", "c", "c"]


@given(st.integers(1, 5), st.lists(st.one_of(st.none(), st.integers(0, 50)), max_size=60))
def test_loads_differ_by_one_at_most_while_nothing_ends_and_never_drift(
    servers: int, steps: list[int | None]
) -> None:
    balance, urls = Balance(), [f"http://{n}" for n in range(servers)]
    out: list[str] = []
    for step in steps:
        if step is None or not out:
            loads = {url: out.count(url) for url in urls}
            picked = balance.pick(urls)
            assert loads[picked] == min(loads.values())
            out.append(picked)
        else:
            balance.done(out.pop(step % len(out)))
