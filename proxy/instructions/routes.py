"""The HTTP routes of instructions. Every caller reads and changes their own list, also if none are added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.proxy.described import described, flat, listing
from burnish.proxy.instructions.instructions import Instructions, addition
from burnish.proxy.json_http import Body, caller_of, json_response, read_json, validated
from burnish.proxy.log import Log
from burnish.proxy.records import Instruction

MAX_BODY_BYTES = 64 * 1024

Live = Callable[[], int | None]
"""Returns the live version; None if burnish doesn't swap versions."""


class InstructionRequest(Body):
    text: Annotated[str, Field(min_length=1, strict=True)]


INSTRUCTION = flat("Instruction", Instruction, object=Literal["instruction"])
LISTED = flat("ListedInstruction", INSTRUCTION, state=str)


def instruction_routes(log: Log, instructions: Instructions, live: Live) -> list[Route]:
    @described(
        "the caller's instructions (`x-burnish-user`)",
        listing(LISTED, "Instructions", instructions=bool, caller=str, text=str | None),
    )
    async def index(request: Request) -> Response:
        caller = caller_of(request)
        listed = await instructions.listed(caller, live())
        prompt_addition = addition(listed)
        return json_response(
            {
                "object": "list",
                "instructions": instructions.on,
                "caller": caller,
                "text": prompt_addition.text if prompt_addition else None,
                "data": [instruction_json(instruction) | {"state": state} for instruction, state in listed],
            }
        )

    @described("add an instruction", INSTRUCTION, body=InstructionRequest, statuses=(201,))
    async def create(request: Request) -> Response:
        caller, text = await _caller_and_text(request)
        instruction = await log.add_instruction(caller, text)
        instructions.changed(caller)
        return json_response(instruction_json(instruction), 201)

    @described("change one", INSTRUCTION, body=InstructionRequest)
    async def edit(request: Request) -> Response:
        caller, text = await _caller_and_text(request)
        instruction = await log.edit_instruction(caller, request.path_params["id"], text)
        instructions.changed(caller)
        return json_response(instruction_json(instruction))

    @described("remove one", INSTRUCTION)
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
    return {"object": "instruction", **asdict(instruction)}


async def _caller_and_text(request: Request) -> tuple[str, str]:
    body = validated(InstructionRequest, await read_json(request, MAX_BODY_BYTES))
    return caller_of(request), body.text
