"""Reading a scrape as Prometheus does."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

Series = tuple[str, frozenset[tuple[str, str]]]


class Scrape(dict[Series, float]):
    """The value of each series."""

    def value(self, name: str, **labels: str) -> float:
        """Of one series; 0 while there is none."""
        return self.get((name, frozenset(labels.items())), 0.0)

    def total(self, name: str, **labels: str) -> float:
        """Of all series that have these labels."""
        wanted = labels.items()
        return sum(
            value for (each, found), value in self.items() if each == name and wanted <= dict(found).items()
        )


def parsed(text: str) -> Scrape:
    """Parse the text format; fails on whatever Prometheus would not take."""
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(set(names)) == len(names), "each family once"
    samples = [sample for family in families for sample in family.samples]
    found = Scrape({(each.name, frozenset(each.labels.items())): each.value for each in samples})
    assert len(found) == len(samples), "each series once"
    return found


async def scrape(client: httpx.AsyncClient) -> Scrape:
    """Scrape once all that has been captured so far is counted, which is soon, but not at once."""
    await client.get("/burnish/completions")  # reads behind all captures
    answer = await client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return parsed(answer.text)
