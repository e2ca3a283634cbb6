"""The HTTP routes of training runs and of adapter versions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StrictBool, StrictInt
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.adapters.manifest import BASE_VERSION, State
from burnish.adapters.merging import Merged
from burnish.adapters.registry import Registry
from burnish.learner.learner import Learner
from burnish.learner.plan import RunOptions
from burnish.learner.progress import Progress
from burnish.learner.reset import Outcome
from burnish.learner.transfer import Format, Transfer
from burnish.learner.version_details import details, summary
from burnish.proxy.access.access import Action, Identity, demand, identity_of
from burnish.proxy.described import described, flat, list_of, optional
from burnish.proxy.http.errors import Forbidden, Unprocessable
from burnish.proxy.json_http import Body, json_response, page_limit, read_json, validated
from burnish.proxy.log import Log
from burnish.proxy.log.runs import Run
from burnish.proxy.plain import Line
from burnish.system.threads import in_one_thread

MAX_BODY_BYTES = 64 * 1024
MAX_PATH = 4096
BURNISHS_OWN = {(name,) for name in ("adapters", "jobs", "rewards", "engine", "burnish.db-spill")} | {()}
"""Beginnings of paths in the data directory where nothing may be written by hand."""
MAX_REASON = 1000
"""Characters."""


class _Version(IntegerConvertor):
    """Starlette's own takes any number of digits, and Python makes no number of thousands."""

    regex = "[0-9]{1,9}"


register_url_convertor("version", _Version())


StartOver = Callable[[str], Awaitable[Outcome]]
"""Starts learning over, for a reason. Raises Conflict, Unavailable."""
Reason = Annotated[Line, Field(min_length=1, max_length=MAX_REASON, strict=True)]


class PromoteRequest(Body):
    """``POST /burnish/adapters/promote`` (the version that waits) and ``POST /burnish/adapters/{n}/promote``."""

    force: StrictBool = False
    """Promote it even if the gate rejected it."""
    reason: Reason = "promoted by hand"


class RollbackRequest(Body):
    """``POST /burnish/adapters/rollback``."""

    to: Annotated[StrictInt, Field(ge=BASE_VERSION)] | None = None
    """0 = the base model; None = one step back."""
    reason: Reason = "rolled back by hand"


class ResetRequest(Body):
    """``POST /burnish/reset``."""

    reason: Reason = "reset by hand"


class ImportRequest(Body):
    """``POST /burnish/adapters``."""

    path: Annotated[str, Field(min_length=1, max_length=MAX_PATH, strict=True)]
    reason: Reason = "imported by hand"


class ExportRequest(Body):
    """``POST /burnish/adapters/{n}/export``."""

    path: Annotated[str, Field(min_length=1, max_length=MAX_PATH, strict=True)]
    format: Format = "peft"


RUN = flat("Run", Run, progress=Progress | None, step=dict[str, Any] | None, result=dict[str, Any] | None)
VERSION = flat(
    "Version",
    version=int,
    name=str,
    state=State,
    reason=str,
    parent=int,
    run_id=str,
    created_at=str,
    objective=str,
    ratings=int,
    episodes=int,
    reward=float | None,
)
LIVE = flat("Live", live=int, previous=int | None, note=str | None)


def learner_routes(
    learner: Learner, registry: Registry, transfer: Transfer, log: Log, data_dir: Path
) -> list[Route]:
    return [
        *_run_routes(learner, log),
        *_version_routes(learner, registry, log),
        *_decision_routes(learner, registry),
        *_transfer_routes(transfer, data_dir),
    ]


def _run_routes(learner: Learner, log: Log) -> list[Route]:
    @described(
        "start a run. `rollouts` is the [task whose rewards teach](agents-that-learn.md), `objective` a name. With "
        "`dry_run` only see what it would do",
        dict[str, Any],
        body=RunOptions,
        statuses=(200, 202),
    )
    async def train(request: Request) -> Response:
        options = validated(RunOptions, await read_json(request, MAX_BODY_BYTES))
        if options.rollouts is not None and (options.refresh or options.rlhf):
            raise Unprocessable(
                "rollouts can't be combined with refresh or rlhf: those are about ratings", param="rollouts"
            )
        if options.dry_run:
            return json_response(await learner.dry_run(options))
        warnings = await learner.warnings()
        return json_response({"run_id": await learner.train_now(options), "warnings": warnings}, 202)

    @described("stop or restart automatic runs")
    async def pause(request: Request) -> Response:
        await learner.pause(on=request.url.path.endswith("/pause"))
        return json_response(learner.status())

    @described("training runs, latest first", flat("Runs", runs=list_of(RUN)), query=("limit",))
    async def runs(request: Request) -> Response:
        return json_response({"runs": [learner.shown(run) for run in await log.runs(page_limit(request))]})

    @described(
        "one training run; `progress` has `phase`, its number `step` of `steps`, `started_at`, `done`, `total`, "
        "`eta_s` and `run_eta_s` (`null`: unknown; `guessed`: there is no earlier run to go by), `step` the figures of "
        "the latest step. [Phases](rating.md#watch-a-run). `curve` has `step`, `loss`, `kl_per_token` and `margin`, "
        "lists of at most 200 points, kept with the run",
        flat("ShownRun", RUN, curve=dict[str, Any] | None),
    )
    async def run(request: Request) -> Response:
        record = await log.run(request.path_params["id"])
        return json_response(learner.shown(record) | {"curve": await learner.curve(record.id)})

    return [
        Route("/burnish/train", train, methods=["POST"]),
        Route("/burnish/pause", pause, methods=["POST"]),
        Route("/burnish/resume", pause, methods=["POST"]),
        Route("/burnish/runs", runs, methods=["GET"]),
        Route("/burnish/runs/{id}", run, methods=["GET"]),
    ]


def _version_routes(learner: Learner, registry: Registry, log: Log) -> list[Route]:
    @described(
        "versions; which one is `live`, and which is `waiting`",
        flat("Versions", live=int, previous=int | None, waiting=int | None, adapters=list_of(VERSION)),
    )
    async def adapters(request: Request) -> Response:
        listed = [summary(version) for version in await asyncio.to_thread(registry.versions)]
        waits = learner.waiting()
        return json_response(
            {
                "live": registry.live(),
                "previous": registry.previous_live(),
                "waiting": waits and waits.number,
                "adapters": listed,
            }
        )

    @described(
        "one version, with its events, `verdict` (with a `headline`, and each check in `plain` words), `teachers` (who "
        "rated what it learnt from) and `samples` of replies before and after"
    )
    async def adapter(request: Request) -> Response:
        number = request.path_params["n"]
        description = await asyncio.to_thread(details, registry, number, learner.job)
        if manifest := description["manifest"]:
            teachers = await log.teachers(manifest["feedback_ids"])
            description["teachers"] = [teacher._asdict() for teacher in teachers]
        return json_response(description)

    @described(
        "how many requests each version answered on the last days, today included",
        flat("Traffic", days=list_of(flat("Day", date=str, answers=dict[str, int]))),
        query=("limit",),
    )
    async def traffic(request: Request) -> Response:
        days = page_limit(request)
        numbers = [version.number for version in await asyncio.to_thread(registry.versions)]
        rows = await log.answers_by_day([BASE_VERSION, *numbers], days, datetime.now().astimezone())
        listed = [
            {"date": row.date, "answers": {str(n): count for n, count in row.answers.items()}} for row in rows
        ]
        return json_response({"days": listed})

    return [
        Route("/burnish/adapters", adapters, methods=["GET"]),
        Route("/burnish/adapters/traffic", traffic, methods=["GET"]),
        Route("/burnish/adapters/{n:version}", adapter, methods=["GET"]),
    ]


def _decision_routes(learner: Learner, registry: Registry) -> list[Route]:
    @described(
        "make a version live, or the one that [waits](rating.md#decide-yourself) (409 if none does); `note` "
        "names what the gate hasn't compared",
        LIVE,
        body=PromoteRequest,
    )
    async def promote(request: Request) -> Response:
        body = validated(PromoteRequest, await read_json(request, MAX_BODY_BYTES))
        promoted = await learner.promote(request.path_params.get("n"), body.reason, force=body.force)
        return _live(registry, note=promoted.note)

    @described("go back to a version; 0 is the base model", LIVE, body=RollbackRequest)
    async def rollback(request: Request) -> Response:
        body = validated(RollbackRequest, await read_json(request, MAX_BODY_BYTES))
        await learner.rollback(body.to, body.reason)
        return _live(registry)

    @described(
        "judge a candidate once more, such as after [held-out seeds](agents-that-learn.md#held-out-seeds) were played",
        flat("Judging", run_id=str),
        statuses=(202,),
    )
    async def judge(request: Request) -> Response:
        return json_response({"run_id": await learner.judge_now(request.path_params["n"])}, 202)

    return [
        Route("/burnish/adapters/{n:version}/judge", judge, methods=["POST"]),
        Route("/burnish/adapters/rollback", rollback, methods=["POST"]),
        Route("/burnish/adapters/promote", promote, methods=["POST"]),
        Route("/burnish/adapters/{n:version}/promote", promote, methods=["POST"]),
    ]


def _transfer_routes(transfer: Transfer, data_dir: Path) -> list[Route]:
    @described("import an adapter as a version", VERSION, body=ImportRequest, statuses=(201,))
    async def import_(request: Request) -> Response:
        body = validated(ImportRequest, await read_json(request, MAX_BODY_BYTES))
        source = _reachable(body.path, data_dir, identity_of(request.scope))
        version = await in_one_thread(transfer.import_adapter, source, body.reason)
        return json_response(summary(version), 201)

    @described(
        "write a version as `peft`, `gguf` or `mlx`, or as a model of its own: `merged-gguf`, `merged-hf`. Of "
        "these, `merged` has `kept`, `noise`, `size_bytes`, `precision`",
        flat("Exported", path=str, format=Format, merged=optional(Merged)),
        body=ExportRequest,
    )
    async def export(request: Request) -> Response:
        body = validated(ExportRequest, await read_json(request, MAX_BODY_BYTES))
        target = _reachable(body.path, data_dir, identity_of(request.scope), writes=True)
        merged = await transfer.export_version(request.path_params["n"], body.format, target)
        answer = {"path": str(target), "format": body.format}
        return json_response(answer | {"merged": asdict(merged)} if merged else answer)

    return [
        Route("/burnish/adapters", import_, methods=["POST"]),
        Route("/burnish/adapters/{n:version}/export", export, methods=["POST"]),
    ]


def reset_route(start_over: StartOver) -> Route:
    @described(
        "start learning over: copies the log, makes the base model live, takes all ratings back, unloads all "
        "versions",
        flat("Reset", Outcome, live=int, backup=str),
        body=ResetRequest,
    )
    async def reset(request: Request) -> Response:
        body = validated(ResetRequest, await read_json(request, MAX_BODY_BYTES))
        outcome = await start_over(body.reason)
        return json_response({"live": BASE_VERSION, **outcome._asdict(), "backup": str(outcome.backup)})

    return Route("/burnish/reset", reset, methods=["POST"])


def _reachable(path: str, data_dir: Path, identity: Identity, *, writes: bool = False) -> Path:
    """Return a path that an identity may name, without links. Raises Unprocessable, Forbidden."""
    if not Path(path).is_absolute() or "\0" in path:
        raise Unprocessable(f"path must be absolute, not {path!r}", param="path")
    try:
        real_path = Path(path).resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise Unprocessable(f"path cannot be read: {error}", param="path") from error
    home = data_dir.resolve()
    if not real_path.is_relative_to(home):
        demand(identity, Action.TRANSFER_ANYWHERE, f"a path outside {home}", param="path")
    elif writes and real_path.relative_to(home).parts[:1] in BURNISHS_OWN:
        raise Forbidden(f"{real_path} is inside a directory that burnish keeps for itself", param="path")
    return real_path


def _live(registry: Registry, note: str | None = None) -> Response:
    return json_response({"live": registry.live(), "previous": registry.previous_live(), "note": note})
