"""The HTTP routes of instructions: every caller sees and changes the own list, whether it is in use or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.proxy.instructions.instructions import Instructions, addition
from burnish.proxy.json_http import caller_of, json_response, read_json, validated
from burnish.proxy.log import Log
from burnish.proxy.records import Instruction

MAX_BODY_BYTES = 64 * 1024

Live = Callable[[], int | None]
"""Returns the version that is live; None where burnish swaps none."""


class InstructionRequest(BaseModel):
    """``POST /burnish/instructions`` and ``PATCH /burnish/instructions/{id}``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: Annotated[str, Field(min_length=1, strict=True)]


def instruction_routes(log: Log, instructions: Instructions, live: Live) -> list[Route]:
    """Return the routes under /burnish/instructions."""

    async def index(request: Request) -> Response:
        caller = caller_of(request)
        listed = await instructions.listed(caller, live())
        added = addition(listed)
        return json_response(
            {
                "object": "list",
                "instructions": instructions.on,
                "caller": caller,
                "text": added.text if added else None,
                "data": [instruction_json(instruction) | {"state": state} for instruction, state in listed],
            }
        )

    async def create(request: Request) -> Response:
        caller, text = await _said(request)
        instruction = await log.add_instruction(caller, text)
        instructions.changed(caller)
        return json_response(instruction_json(instruction), 201)

    async def edit(request: Request) -> Response:
        caller, text = await _said(request)
        instruction = await log.edit_instruction(caller, request.path_params["id"], text)
        instructions.changed(caller)
        return json_response(instruction_json(instruction))

    async def remove(request: Request) -> Response:
        caller = caller_of(request)
        instruction = await log.remove_instruction(caller, request.path_params["id"])
        instructions.changed(caller)
        return json_response(instruction_json(instruction))

    return [
        Route("/burnish/instructions", index, methods=["GET"]),
        Route("/burnish/instructions", create, methods=["POST"]),
        Route("/burnish/instructions/{id}", edit, methods=["PATCH"]),
        Route("/burnish/instructions/{id}", remove, methods=["DELETE"]),
    ]


def instruction_json(instruction: Instruction) -> dict[str, Any]:
    """Return an instruction as clients see it."""
    return {"object": "instruction", **asdict(instruction)}


async def _said(request: Request) -> tuple[str, str]:
    body = validated(InstructionRequest, await read_json(request, MAX_BODY_BYTES))
    return caller_of(request), body.text
