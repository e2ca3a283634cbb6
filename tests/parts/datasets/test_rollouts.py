"""Rollouts for other trainers: captured through burnish, exported, and read as each trainer reads them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.parts.datasets.test_round_trip import TOOL, address, exported
from tests.support import chat_wire
from tests.support.inprocess import behind
from tests.support.program import call
from tests.support.upstream import Received, Script, reply

Json = dict[str, Any]
DOCS = Path(__file__).parents[3] / "docs"
CHAT = "/v1/chat/completions"
ROLES = {"system": 101, "user": 102, "assistant": 103, "tool": 104}
END = 2
QUESTION = {"role": "user", "content": "How warm?"}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "20"}
CALL = chat_wire.called("look", {"at": "tea"}, "c1")


def ids_of(message: Json) -> list[int]:
    calls = [each["function"] for each in message.get("tool_calls") or ()]
    text = (message.get("content") or "") + (json.dumps(calls) if calls else "")
    return [*text.encode(), END]


def prompt_of(messages: list[Json]) -> list[int]:
    rendered = [number for each in messages for number in (ROLES[each["role"]], *ids_of(each))]
    return [*rendered, ROLES["assistant"]]


def engine(*, tells: bool = True, anew: bool = False) -> Script:
    """A vLLM that calls a tool, and then answers. ``anew``: its prompts don't begin with what it sampled before."""

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        if request.target == "/v1/models":
            card = {"id": "mock", "object": "model", "root": "mock"}
            card["owned_by"] = "vllm" if tells else "somebody"
            return await reply(orjson.dumps({"object": "list", "data": [card]}))(request, writer)
        if request.target != CHAT:
            return await reply(b"{}", status="404 Not Found")(request, writer)
        body = request.json()
        answered = body["messages"][-1]["role"] == "tool"
        says = {"content": "20 degrees."} if answered else {"content": None, "tool_calls": [CALL]}
        made = ids_of(says)
        whole = chat_wire.whole(says)
        if body.get("return_token_ids"):
            whole["prompt_token_ids"] = [*([7] if anew and answered else []), *prompt_of(body["messages"])]
            told = [{"token": "?", "logprob": -0.25, "bytes": None, "top_logprobs": []} for _ in made]
            whole["choices"][0] |= {"token_ids": made, "logprobs": {"content": told}}
        await reply(orjson.dumps(whole))(request, writer)

    return script


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with behind(tmp_path, engine(), model="mock") as (http, _):
        yield http


async def ask(http: httpx.AsyncClient, rollout: Json, messages: list[Json]) -> list[Json]:
    body = {"model": "mock", "messages": messages, "tools": [TOOL]}
    headers = {"user-agent": "agent/1"}
    answer = await http.post(f"{rollout['base_url']}/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return [*messages, answer.json()["choices"][0]["message"]]


async def played(
    http: httpx.AsyncClient, *, reward: float | None = 1.0, ends: bool = True, **more: Any
) -> Json:
    """One attempt: a tool is called, and the answer is rewarded."""
    rollout = (await http.post("/v1/rollouts", json={"task": "tea", "group": "g1", "seed": 7} | more)).json()
    asked = await ask(http, rollout, [QUESTION])
    await ask(http, rollout, [*asked, RESULT])
    if reward is not None:
        for said in ({"value": reward, "reason": "it is"}, {"value": 0.5, "step": 1}):
            given = await http.post(f"/v1/rollouts/{rollout['id']}/reward", json=said)
            assert given.status_code == 200, given.text
    if ends:
        await http.post(f"/v1/rollouts/{rollout['id']}/end", json={})
    return dict(rollout)


async def lines_of(http: httpx.AsyncClient, name: str, *more: object) -> tuple[list[Json], list[str]]:
    """Return the lines of an export, and what it said of them."""
    done = await exported(http, name, *more)
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.splitlines()


FIRST = prompt_of([QUESTION])
CALLED = ids_of({"tool_calls": [CALL]})
TOLD = [ROLES["tool"], *ids_of(RESULT), ROLES["assistant"]]
ANSWERED = ids_of({"content": "20 degrees."})


async def test_a_rollout_is_one_sequence_for_trl(http: httpx.AsyncClient) -> None:
    rollout = await played(http, tags={"set": "a"})
    (line,), words = await lines_of(http, "trl-rollouts")
    assert words == ["wrote 1 lines: 1 sequences"]
    assert line.pop("prompt_ids") == FIRST
    assert line.pop("completion_ids") == [*CALLED, *TOLD, *ANSWERED]
    assert line.pop("env_mask") == [1] * len(CALLED) + [0] * len(TOLD) + [1] * len(ANSWERED)
    assert line.pop("logprobs") == [-0.25] * len(CALLED) + [0.0] * len(TOLD) + [-0.25] * len(ANSWERED)
    assert line == {
        "reward": 1.5, "step_rewards": [None, 0.5], "rollout": rollout["id"], "part": 0, "parts": 1,
        "task": "tea", "group": "g1", "seed": 7, "version": None, "tags": {"set": "a"},
    }  # fmt: skip


async def test_a_prompt_that_was_tokenised_anew_begins_another_sequence(tmp_path: Path) -> None:
    """Ids are never made up: what the model didn't see in this order isn't joined."""
    async with behind(tmp_path, engine(anew=True), model="mock") as (http, _):
        await played(http)
        lines, _ = await lines_of(http, "trl-rollouts")
        (episode,), _ = await lines_of(http, "verifiers")
        (trajectory,), _ = await lines_of(http, "atif")
    assert [(each["part"], each["parts"]) for each in lines] == [(0, 2), (1, 2)]
    assert [each["completion_ids"] for each in lines] == [CALLED, ANSWERED]
    assert lines[1]["prompt_ids"][0] == 7
    parents = [each["parent"] for each in episode["traces"][0]["nodes"]]
    assert parents == [None, 0, None, 2, 3, 4], "two branches of one graph"
    assert len(trajectory["steps"]) == 3, "to a reader it is one conversation"


async def test_a_fork_shares_its_beginning(http: httpx.AsyncClient) -> None:
    rollout = (await http.post("/v1/rollouts", json={"task": "tea"})).json()
    asked = await ask(http, rollout, [QUESTION])
    await ask(http, rollout, [*asked, RESULT])
    await ask(http, rollout, [*asked, RESULT | {"content": "30"}])
    await http.post(f"/v1/rollouts/{rollout['id']}/reward", json={"value": 1})
    await http.post(f"/v1/rollouts/{rollout['id']}/end", json={})
    lines, _ = await lines_of(http, "trl-rollouts")
    (episode,), _ = await lines_of(http, "verifiers")
    trajectories, _ = await lines_of(http, "atif")
    assert [sum(each["env_mask"]) for each in lines] == [len(CALLED) + len(ANSWERED), len(ANSWERED)]
    assert [each["parent"] for each in episode["traces"][0]["nodes"]] == [None, 0, 1, 2, 1, 4]
    assert [each["trajectory_id"] for each in trajectories] == [f"{rollout['id']}/0", f"{rollout['id']}/1"]
    copied = [[step.get("is_copied_context") for step in each["steps"]] for each in trajectories]
    assert copied == [[None, None, None], [True, True, None]]


async def test_an_episode_for_verifiers(http: httpx.AsyncClient) -> None:
    rollout = await played(http)
    (episode,), words = await lines_of(http, "verifiers")
    assert words == ["wrote 1 lines: 1 episodes"]
    assert (episode["id"], episode["ok"], episode["group"]) == (rollout["id"], True, {"id": "g1"})
    (trace,) = episode["traces"]
    nodes = trace["nodes"]
    assert [(each["parent"], each["message"]["role"], each.get("sampled", False)) for each in nodes] == [
        (None, "user", False), (0, "assistant", True), (1, "tool", False), (2, "assistant", True),
    ]  # fmt: skip
    ids = [number for each in nodes for number in each.get("token_ids", ())]
    assert ids == [*FIRST, *CALLED, *TOLD, *ANSWERED]
    for each in nodes:
        assert sum(each.get("mask", ())) == len(each.get("logprobs", ()))
    call = {"id": "c1", "type": "function", **CALL["function"]}
    assert nodes[1]["message"]["tool_calls"] == [call]
    assert [each["node"] for each in trace["calls"]] == [1, 3]
    assert trace["rewards"] == {"environment": {"score": 1.5, "weight": 1.0}}


async def test_a_trajectory_of_harbor(http: httpx.AsyncClient) -> None:
    rollout = await played(http)
    (line,), words = await lines_of(http, "atif")
    assert words == ["wrote 1 lines: 1 trajectories"]
    assert line["session_id"] == line["trajectory_id"] == rollout["id"]
    assert line["schema_version"] == "ATIF-v1.7"
    assert line["agent"]["model_name"] == "mock"
    assert [(each["step_id"], each["source"], each["message"]) for each in line["steps"]] == [
        (1, "user", "How warm?"), (2, "agent", ""), (3, "agent", "20 degrees."),
    ]  # fmt: skip
    acts = line["steps"][1]
    assert acts["tool_calls"] == [{"tool_call_id": "c1", "function_name": "look", "arguments": {"at": "tea"}}]
    assert acts["observation"] == {"results": [{"source_call_id": "c1", "content": "20"}]}
    assert acts["metrics"]["completion_token_ids"] == CALLED
    assert acts["metrics"]["prompt_token_ids"] == FIRST
    assert acts["metrics"]["logprobs"] == [-0.25] * len(CALLED)
    assert (line["extra"]["reward"], line["extra"]["reasons"]) == (1.5, ["it is"])
    assert line["steps"][2]["extra"]["reward"] == 0.5


async def test_what_is_left_out_is_said(http: httpx.AsyncClient) -> None:
    await played(http)
    await played(http, ends=False)
    await played(http, held_out=True)
    await played(http, reward=None)
    await played(http, task="coffee")
    empty = (await http.post("/v1/rollouts", json={})).json()
    await http.post(f"/v1/rollouts/{empty['id']}/end", json={})
    lines, words = await lines_of(http, "trl-rollouts", "--task", "tea")
    assert (len(lines), words[0]) == (1, "wrote 1 lines: 1 sequences")
    reasons = ("has not ended", "is held out to judge versions by", "has no reward")
    assert {*words[1:]} == {f"left out 1: it {reason}" for reason in reasons}
    lines, words = await lines_of(http, "atif")
    assert len(lines) == 3
    assert "left out 1: the agent asked nothing" in words
    wrong = await asyncio.to_thread(call, "data", "export", "--as", "sft", "--task", "tea", url=address(http))
    assert (wrong.returncode, "--task is for trl-rollouts" in wrong.stderr) == (2, True)


async def test_without_token_ids_trl_gets_nothing_and_the_others_get_texts(tmp_path: Path) -> None:
    async with behind(tmp_path, engine(tells=False), model="mock") as (http, _):
        await played(http)
        lines, words = await lines_of(http, "trl-rollouts")
        assert (lines, words[0]) == ([], "wrote 0 lines")
        assert words[1].startswith("left out 1: no token ids: ")
        (episode,), _ = await lines_of(http, "verifiers")
        assert not any("token_ids" in each for each in episode["traces"][0]["nodes"])
        (trajectory,), _ = await lines_of(http, "atif")
        assert "completion_token_ids" not in trajectory["steps"][1]["metrics"]


def tiny_policy(path: Path) -> Path:
    """A model of random weights whose tokens are the engine's."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    known = {f"<{number}>": number for number in range(256)}
    words = Tokenizer(WordLevel(known, unk_token="<0>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token=f"<{END}>", pad_token="<0>")
    tokenizer.save_pretrained(path)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(known), **sizes)).save_pretrained(path)
    return path


@pytest.mark.filterwarnings("ignore")  # what TRL and its libraries warn of is theirs to mend
async def test_trl_trains_on_them(
    http: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the program in the documentation, on a tiny model."""
    for reward in (1.0, 0.0):
        await played(http, reward=reward)
    await lines_of(http, "trl-rollouts", "--out", str(tmp_path / "rollouts.jsonl"))
    (program,) = re.findall(r"```python\n(.*?)```", (DOCS / "other-trainers.md").read_text(), re.DOTALL)
    here = {
        "Qwen/Qwen3-0.6B": str(tiny_policy(tmp_path / "tiny")),
        'output_dir="trained"': 'output_dir="trained", use_cpu=True, bf16=False, report_to="none", save_strategy="no"',
    }
    for written, tried in here.items():
        assert written in program
        program = program.replace(written, tried)
    monkeypatch.chdir(tmp_path)
    told: Json = {}
    await asyncio.to_thread(exec, program, told)
    (step,) = [each for each in told["trainer"].state.log_history if "reward" in each]
    assert step["reward"] == pytest.approx(1.0)  # of 1.5 and .5
    assert step["completions/mean_length"] == len(CALLED) + len(ANSWERED)
    assert told["trainer"].state.global_step == 1


async def test_harbor_and_verifiers_read_them(http: httpx.AsyncClient, tmp_path: Path) -> None:
    """With the real packages, where they are installed: neither goes with the versions that the other tests want."""
    trajectories = pytest.importorskip("harbor.models.trajectories.trajectory")
    traces = pytest.importorskip("verifiers.v1.trace")
    tasks = pytest.importorskip("verifiers.v1.task")
    stores = pytest.importorskip("verifiers.v1.utils.trace_store")
    await played(http)
    (line,), _ = await lines_of(http, "atif")
    (episode,), _ = await lines_of(http, "verifiers")
    assert trajectories.Trajectory.model_validate(line).to_json_dict() == line
    (tmp_path / "traces.jsonl").write_text(json.dumps(episode))
    (read,) = stores.read_episodes(tmp_path, traces.Trace[tasks.WireTaskData])
    (branch,) = read.traces[0].branches
    assert branch.token_ids == [*FIRST, *CALLED, *TOLD, *ANSWERED]
    assert read.traces[0].reward == 1.5
