"""``burnish status`` and ``raters``."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote
from typing import Any

from rich.markup import escape
from rich.table import Table

from burnish.cli.train import left_out, prompts_compared
from burnish.cli.watch import described
from burnish.terminal.client import Proxy
from burnish.terminal.terminal import Json, Url, console, printed_json


def status(url: Url = None, as_json: Json = False) -> None:
    proxy = Proxy(url)
    state = proxy.get("/burnish/status")
    if printed_json(state | {"url": proxy.url}, as_json):
        return
    print_facts(_lines(state, proxy.url))


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and texts, which are markup, in two columns."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for name, text in facts:
        table.add_row(name, text)
    console.print(table)


def _rollouts(rollouts: dict[str, Any]) -> list[tuple[str, str]]:
    """Nothing learns from them by itself, so it is said that they wait."""
    under_way = [f"{rollouts['open']} under way"] if rollouts["open"] else []
    tasks = [
        f"{count} of the task {escape(repr(task))} teach with [cyan]burnish train --rollouts {escape(quote(task))}[/]"
        for task, count in rollouts["ready"].items()
    ]
    lines = [*under_way, *tasks]
    return [("rollouts" if not place else "", line) for place, line in enumerate(lines)]


def _lines(state: dict[str, Any], url: str) -> list[tuple[str, str]]:
    counts, learner, live = state["counts"], state["learner"], state["live"]
    lines = [
        ("burnish", f"{state['version']} at {escape(url)}"),
        ("upstream", escape(state["upstream"])),
        *(("", _further(upstream)) for upstream in state["upstreams"]),
        ("live", _live(live, replicas=state["upstream"].count(",") + 1)),
        ("answers", f"{counts['completions']} in {counts['conversations']} conversations"),
        (
            "rated",
            f"{counts['ratings']} answers ([green]{counts['good']} good[/], [red]{counts['bad']} bad[/]), "
            f"{counts['comments']} commented",
        ),
    ]
    if started := state["engine"].get("started"):
        lines.insert(2, ("engine", escape(started_engine(started))))
    if count := counts["passthrough"]:
        passed = f"{count} other requests passed through: burnish history --passthrough"
        lines.insert(-1, ("other", passed))
    if ratings := learner.get("ready"):
        needed = learner["needed"]
        lines.append(
            (
                "ready",
                f"{ratings['new_comments']} of {needed['comments']} comments; or {ratings['new']} of {needed['new']} "
                f"new ratings, {ratings['good']} of {needed['good']} good, {ratings['bad']} of {needed['bad']} bad"
                + (f"; {ratings['pairs']} corrections and preferences" if ratings["pairs"] else ""),
            )
        )
        for line in filter(None, (left_out(learner), prompts_compared(learner.get("prompts")))):
            lines.append(("", escape(line)))
    if window := state["engine"].get("window"):
        requests = f"{window['parallel']} requests at a time, each of up to {window['context']:,} tokens"
        lines.append(("engine", f"{requests}; the model was trained for {window['trained']:,}"))
    if live["name"]:
        lines.append(("swapping", _swapping(state["engine"])))
    if waits := learner.get("waiting"):
        make_live = "make it live: [cyan]burnish adapters promote[/]"
        lines.append(("waiting", f"[bold]v{waits['version']}[/], {escape(waits['reason'])} – {make_live}"))
    lines.append(("training", f"{learner['state']}: {escape(learner['reason'])}"))
    if state["instructions"]["on"] or state["instructions"]["count"]:
        lines.append(("instructions", _instructions(state["instructions"])))
    lines += _signals(state["signals"])
    lines += _rollouts(state["rollouts"])
    if run := learner.get("run"):
        lines.append(("progress", f"{described(run)}; to watch it: burnish watch"))
    for trouble in (state["engine"]["trouble"], state["log"]["trouble"]):
        if trouble:
            lines.append(("trouble", f"[red]{escape(trouble)}[/]"))
    return lines


def started_engine(engine: dict[str, Any]) -> str:
    restarts = f", restarted {engine['restarts']}×" if engine["restarts"] else ""
    process = f", process {engine['pid']}" if engine["pid"] else ""
    return f"{engine['name']}, started by burnish: {engine['state']}{process}{restarts}; its log is {engine['log']}"


def _further(upstream: dict[str, Any]) -> str:
    teaches = "teaches" if upstream["teaches"] else "doesn't teach"
    trouble = f" – [red]{escape(upstream['trouble'])}[/]" if upstream["trouble"] else ""
    models = escape(", ".join(upstream["models"]))
    return f"{escape(upstream['url'])} for {models} ({upstream['name']}, {teaches}){trouble}"


def _swapping(engine: dict[str, Any]) -> str:
    if engine["obstacle"] is None:
        return f"versions can be swapped in this engine, as {engine['way']}"
    return f"[yellow]versions can't be swapped yet[/]: {escape(engine['obstacle'])}"


def _instructions(instructions: dict[str, Any]) -> str:
    count = instructions["count"]
    if instructions["on"]:
        return f"{count} in the system prompt: burnish instructions"
    return f"you have {count}, but they are off: set instructions = true to add them to the system prompt"


def _signals(signals: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what was read from results of tools, and the latest result that can't be trusted."""
    if not signals["on"]:
        return []
    totals = f"on: {signals['given']} ratings by results of tools, {signals['withheld']} withheld"
    withheld = [signal for signal in signals["latest"] if signal["good"] is None][-1:]
    why = [f"no good rating for {signal['completion_id']}: {escape(signal['words'])}" for signal in withheld]
    return [("signals", totals), *(("", reason) for reason in why)]


def _live(live: dict[str, Any], replicas: int) -> str:
    if not live["name"]:
        return "–"
    where = f" on {len(live['served_by'])} of {replicas} replicas" if replicas > 1 else ""
    weakly = ", weakly proven" if live.get("proof") == "weakly proven" else ""
    return f"[bold]{escape(live['name'])}[/]{where}{weakly}"


def raters(url: Url = None, as_json: Json = False) -> None:
    """A rater who agrees with the others no more often than chance rates by other standards. Set `train.rater_weights`
    to give each rater more or less weight.
    """
    page = Proxy(url).get("/burnish/raters")
    if printed_json(page, as_json):
        return
    if not page["data"]:
        console.print("[dim]no answers are rated yet[/]")
        return
    table = Table("rater", box=None, pad_edge=False)
    for name in ("good", "bad", "commented", "weight", "agrees with the others"):
        table.add_column(name, justify="right")
    for rater in page["data"]:
        table.add_row(
            f"[bold]{escape(rater['name'])}[/]",
            f"[green]{rater['good']}[/]",
            f"[red]{rater['bad']}[/]",
            str(rater["commented"]),
            f"{rater['weight']:g}",
            _agreement(rater),
        )
    console.print(table)


def _agreement(rater: dict[str, Any]) -> str:
    if not rater["compared"]:
        return "[dim]no other ratings of these answers[/]"
    return f"{rater['agreed']} of {rater['compared']} [dim]({rater['by_chance']:.1f} by chance)[/]"
