"""The teacher's replies: before a run on comments, the serving engine answers the criticised questions again.

The live version is the policy at the start of the run. It gets the comments in the prompt (``training.comments``), with
the tools of the request. Requests go straight to the engine, so they are neither logged nor counted. What can't be
asked here, the trainer asks the model itself.
"""

from __future__ import annotations

import logging
from contextlib import suppress

import orjson

from burnish.adapters.errors import AdapterError, EngineError
from burnish.adapters.hosts.base import Endpoint
from burnish.adapters.manifest import BASE_VERSION
from burnish.adapters.registry import version_label
from burnish.adapters.swap import Swap
from burnish.config.hyperparameters import WITH_COMMENTS
from burnish.gate.confidence import nine_in_ten
from burnish.gate.replies import text_of
from burnish.learner import sampling
from burnish.learner.asked import FIXED
from burnish.training.comments import TEMPERATURE, TOP_P, TeacherPrompt, room_for, teacher_prompts
from burnish.training.errors import JobError
from burnish.training.job import CONTINUED, JobDirectory, PolicyReply, Sample, TeacherReply
from burnish.training.phases import Phases

logger = logging.getLogger(__name__)

# An engine that died comes back in two seconds; a busy machine takes longer.
ENGINE_WAIT_S = 60.0
# No tokenizer is here. English takes some four bytes a token, and other scripts three to six.
BYTES_A_TOKEN = 4


async def answer_again(job: JobDirectory, swap: Swap, phases: Phases) -> None:
    """Have the engine answer what the job's comments criticise, and go on if it was stopped. Raises JobError.

    One reply is a line of ``teacher.jsonl`` as soon as it comes.
    """
    spec = job.spec()
    if spec.objective not in WITH_COMMENTS or job.checkpoint.is_dir():  # the trainer has begun
        return
    samples = [sample for sample in job.samples() if not sample.held_out]
    # Those of one sample follow each other, so the engine reads its long prompt once.
    prompts = {_name(p): p for p in teacher_prompts(samples, spec.seed) if _can_ask(p.sample)}
    known = {f"{reply.completion_id}#{reply.number}" for reply in _known(job)}
    phases.begin("answering", len(prompts), len(known))

    def keep(name: str) -> None:
        if reply := sampler.replies.get(name):
            with suppress(OSError), job.teacher.open("a", encoding="utf-8") as file:
                file.write(_record(prompts[name], reply).model_dump_json() + "\n")
        phases.advance()

    try:
        await swap.route.wait_live(ENGINE_WAIT_S)
        with swap.route.lease() as lease:
            endpoint = await _of_version(spec.parent_version, swap, lease.endpoint)
            criticised = {prompt.sample.completion_id: prompt.sample for prompt in prompts.values()}
            usual = nine_in_ten(_tokens(sample) for sample in criticised.values() if sample.finished)
            asking = [_gate_prompt(name, prompt, usual) for name, prompt in prompts.items()]
            sampler = sampling.Sampler("incumbent", endpoint, asking, keep)
            # A stopped run goes on with the same seeds.
            sampler.queue = [(seed, prompt) for seed, prompt in sampler.queue if prompt.id not in known]
            await sampling.ask([sampler])
    except (AdapterError, TimeoutError) as error:
        logger.warning(
            "the engine can't answer the criticised questions again, so the trainer does: %s", error
        )


async def _of_version(version: int, swap: Swap, live: Endpoint) -> Endpoint:
    """Return the endpoint of the version from which a run starts. Raises EngineError."""
    if version == live.version:
        return live
    if version == BASE_VERSION:
        return await swap.host.base(live)
    raise EngineError(f"the run starts from {version_label(version)}, which isn't live")


def _known(job: JobDirectory) -> list[TeacherReply]:
    """Return the replies before a stop; none if the last one is torn."""
    try:
        return job.teacher_replies()
    except JobError:
        job.teacher.unlink()
        return []


def _name(prompt: TeacherPrompt) -> str:
    return f"{prompt.sample.completion_id}#{prompt.number}"


def _can_ask(sample: Sample) -> bool:
    """A chat can be asked again as it is, but no text completion, and no reply whose beginning the request held."""
    return not sample.template.keys() & {CONTINUED, "chat_template"}


def _tokens(sample: Sample) -> int:
    reply = text_of(sample.reply).encode() + orjson.dumps(sample.reply.get("tool_calls") or None)
    return round(len(reply) / BYTES_A_TOKEN)


def _gate_prompt(name: str, prompt: TeacherPrompt, usual: int) -> sampling.GatePrompt:
    sample = prompt.sample
    template = {key: argument for key, argument in sample.template.items() if key not in FIXED}
    params = {
        "temperature": TEMPERATURE,
        "top_p": TOP_P,
        "min_p": 0.0,  # llama.cpp's own is .05
        "max_tokens": room_for(_tokens(sample), usual),
        # What the model thinks with a comment in its prompt is about the comment.
        "chat_template_kwargs": template | {"enable_thinking": False},
    }
    tools = {"tools": sample.tools} if sample.tools else {}
    return sampling.GatePrompt(
        name, tuple(prompt.messages), params | tools, sample.completion_id, sample.template
    )


def _record(prompt: TeacherPrompt, reply: PolicyReply) -> TeacherReply:
    calls = {"tool_calls": list(reply.tool_calls)} if reply.tool_calls else {}
    return TeacherReply(
        completion_id=prompt.sample.completion_id,
        number=prompt.number,
        comments=prompt.comments,
        reply={"role": "assistant", "content": reply.reply, **calls},
        finished=reply.finished and not reply.error,
    )
