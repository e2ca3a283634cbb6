"""Where a turn ends, and what of it is taught, with templates of the structure that families of models have."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from burnish.training.dataset import rendered
from burnish.training.rendering import Renderer, Unrenderable
from tests.support.jobs import sample

Message = dict[str, Any]

EOS = "<|endoftext|>"
WHERE = [{"role": "user", "content": "Where?"}]
NORTH = {"role": "assistant", "content": "North."}
LOOK = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}],
}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
WRITTEN_CALL = 'look {"x": 1}'
CALLS = (
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>"
    "{% endfor %}"
)

GEMMA = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}" + CALLS + "<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
PHI = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}" + CALLS + "<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"
)
GLM = (
    "[gMASK]{% for m in messages %}<|{{ 'observation' if m.role == 'tool' else m.role }}|>\n{{ m.content }}"
    + CALLS
    + "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
LLAMA = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}"
    + CALLS
    + "{{ '<|eom|>' if m.tool_calls else '<|eot|>' }}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
HARMONY = (
    "{% for m in messages %}<|start|>{{ m.role }}"
    "{% if m.tool_calls %} to={{ m.tool_calls[0].function.name }}<|message|>"
    "{{ m.tool_calls[0].function.arguments | tojson }}<|call|>{% elif m.role == 'assistant' %}"
    "{% if m.thinking %}<|channel|>analysis<|message|>{{ m.thinking }}<|end|><|start|>assistant{% endif %}"
    "<|channel|>final<|message|>{{ m.content }}{{ '<|return|>' if loop.last else '<|end|>' }}"
    "{% else %}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
PLAIN = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
QWEN = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
    "{% endif %}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.index0 > ns.last %}"
    "OPEN\n{{ (m.reasoning_content or '').strip('\n') }}\nCLOSE\n\n{% endif %}{{ m.content }}"
    + CALLS
    + "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\nBEGIN{% endif %}"
)
# The template of DeepSeek R1 leaves out what stands before the answer.
R1 = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content.split('</think>')[-1] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|><think>\n{% endif %}"
)
ADDED = (
    "<start_of_turn>", "<end_of_turn>", "<|end|>", "[gMASK]", "<|user|>", "<|assistant|>", "<|observation|>",
    "<|start|>", "<|eom|>", "<|eot|>", "<|message|>", "<|channel|>", "<|call|>", "<|return|>",
)  # fmt: skip


# Its prompts hold an empty thought, its answers don't.
SILENT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}" + CALLS + "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\nEMPTY{% endif %}"
)


def thinking(opening: str = "<think>", closing: str = "</think>", begin: str = "") -> str:
    return QWEN.replace("OPEN", opening).replace("CLOSE", closing).replace("BEGIN", begin)


class Model:
    """A renderer with a template, and the tokenizer in which all special tokens of the families above are known."""

    def __init__(self, folder: Path) -> None:
        self.renderer = Renderer(folder)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def taught(
        self, reply: Message, messages: Sequence[Message] = WHERE, *, finished: bool = True
    ) -> tuple[str, str]:
        """Return what is taught after the prompt of the engine, as (thoughts, answer)."""
        tools = TOOLS if reply.get("tool_calls") else ()
        tokens = self.renderer.conversation(messages, tools, reply, finished, 2048)
        prompt = tuple(self.renderer.prompt(messages, tools))
        assert tokens.prompt[: len(prompt)] == prompt
        return self.text(tokens.prompt[len(prompt) :]), self.text(tokens.reply)

    def text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)


@pytest.fixture(scope="module")
def tokenizer_files(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(weights, local_files_only=True)
    tokenizer.add_special_tokens({"extra_special_tokens": list(ADDED)})
    tokenizer.eos_token = EOS
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model(tokenizer_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Model]:
    """Return the model of a template; ``ends``: the tokens that its generation_config.json lists."""

    @cache
    def made(template: str, ends: Sequence[str] = ()) -> Model:
        folder = tmp_path_factory.mktemp("model")
        shutil.copytree(tokenizer_files, folder, dirs_exist_ok=True)
        (folder / "chat_template.jinja").write_text(template)
        if ends:
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            listed = {"eos_token_id": [tokenizer.token_to_id(end) for end in ends]}
            (folder / "generation_config.json").write_text(json.dumps(listed))
        return Model(folder)

    return made


@pytest.mark.parametrize(
    ("template", "ends", "after_text", "after_calls"),
    [
        pytest.param(GEMMA, (), "<end_of_turn>", "<end_of_turn>", id="gemma"),
        pytest.param(PHI, (), "<|end|>", "<|end|>", id="phi"),
        pytest.param(GLM, (EOS, "<|user|>", "<|observation|>"), "<|user|>", "<|observation|>", id="glm"),
        pytest.param(LLAMA, ("<|eot|>", "<|eom|>"), "<|eot|>", "<|eom|>", id="llama"),
        pytest.param(HARMONY, ("<|return|>", "<|call|>"), "<|return|>", "<|call|>", id="harmony"),
    ],
)
def test_a_turn_ends_with_the_token_of_its_template(
    model: Callable[..., Model], template: str, ends: Sequence[str], after_text: str, after_calls: str
) -> None:
    family = model(template, ends)
    assert family.taught(NORTH)[1] == f"North.{after_text}"
    calls = family.taught(LOOK)[1]
    assert calls.endswith(after_calls)
    assert calls.count(after_calls) == 1
    assert "look" in calls
    assert '{"x": 1}' in calls
    assert family.taught(NORTH, finished=False)[1] == "North."
    stops = {family.text([end]) for end in family.renderer.end_ids}
    assert {after_text, *ends} <= stops, "sampling stops there, too"


@pytest.mark.parametrize(
    ("template", "ends", "taught"),
    [
        pytest.param(PLAIN, (), f"North.{EOS}", id="the engine has no other end"),
        pytest.param(PLAIN, ("<|eot|>",), "North.", id="it may have been either"),
        pytest.param(GLM, ("<|eot|>",), "North.", id="the engine doesn't stop at the next turn"),
    ],
)
def test_an_end_that_nobody_knows_is_not_taught(
    model: Callable[..., Model], template: str, ends: Sequence[str], taught: str
) -> None:
    assert model(template, ends).taught(NORTH)[1] == taught


TAGS = [("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<seed:think>", "</seed:think>")]


@pytest.mark.parametrize(("opening", "closing"), TAGS)
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("reply", [NORTH, LOOK], ids=["text", "calls"])
def test_thoughts_are_context_of_the_answer_and_never_taught(
    model: Callable[..., Model], opening: str, closing: str, opened: bool, reply: Message
) -> None:
    family = model(thinking(opening, closing, f"{opening}\n" if opened else ""))
    begun = "" if opened else f"{opening}\n"
    answer = f"<call>{WRITTEN_CALL}</call><|im_end|>" if reply is LOOK else "North.<|im_end|>"
    whole = f"{begun}The map says north.\n{closing}\n\n", answer
    for field in ("reasoning_content", "reasoning"):
        assert family.taught(reply | {field: "The map says north."}) == whole
    # The engine didn't take them off the text.
    text = f"{begun}The map says north.\n{closing}\n\n{reply['content'] or ''}"
    assert family.taught(reply | {"content": text}) == whole
    # Written by a person, or by a model that didn't think.
    assert family.taught(reply | {"reasoning_content": ""}) == (f"{begun}\n{closing}\n\n", answer)


@pytest.mark.parametrize("reply", [NORTH, LOOK], ids=["text", "calls"])
def test_an_answer_is_never_taught_inside_an_open_thought(
    model: Callable[..., Model], reply: Message
) -> None:
    family = model(thinking(begin="<think>\n"))
    with pytest.raises(Unrenderable, match="its thoughts aren't in the log"):
        family.taught(reply)
    with pytest.raises(Unrenderable, match="in the midst of the model's thoughts"):
        family.taught(reply | {"content": "<think>\nThe map says"}, finished=False)


@pytest.mark.parametrize("reply", [NORTH, LOOK], ids=["text", "calls"])
def test_a_template_that_leaves_out_thoughts_is_refused(model: Callable[..., Model], reply: Message) -> None:
    family = model(R1)
    for thoughts in ("The map says north.", ""):
        with pytest.raises(Unrenderable, match="leaves out what the model thought"):
            family.taught(reply | {"reasoning_content": thoughts})


@pytest.mark.parametrize("empty", ["<think>\n\n</think>\n\n", "<|channel|>thought\n<|end|>"])
def test_a_prompt_with_an_empty_thought_that_answers_lack_is_kept(
    model: Callable[..., Model], empty: str
) -> None:
    family = model(SILENT.replace("EMPTY", empty))
    assert family.taught(NORTH) == ("", "North.<|im_end|>")
    assert family.taught(LOOK) == ("", f"<call>{WRITTEN_CALL}</call><|im_end|>")
    with pytest.raises(Unrenderable, match="leaves out what the model thought"):
        family.taught(NORTH | {"reasoning_content": "The map says north."})


def test_thoughts_of_another_model_are_left_out_of_one_that_does_not_think(
    model: Callable[..., Model],
) -> None:
    family = model(GEMMA)
    assert family.taught(NORTH | {"reasoning_content": "Hm."}) == ("", "North.<end_of_turn>")
    assert family.taught(NORTH | {"content": "<think> is a tag."})[1] == "<think> is a tag.<end_of_turn>"


def test_thoughts_can_be_in_a_channel(model: Callable[..., Model]) -> None:
    family = model(HARMONY, ("<|return|>", "<|call|>"))
    before, answer = family.taught(NORTH | {"reasoning_content": "The map says north."})
    assert before.startswith("<|channel|>analysis<|message|>The map says north.<|end|>")
    assert before.endswith("<|channel|>final<|message|>")
    assert answer == "North.<|return|>"


def test_the_trainer_lets_a_thinking_model_answer_without_thoughts(model: Callable[..., Model]) -> None:
    family = model(thinking(begin="<think>\n"))
    assert family.text(family.renderer.opening(WHERE)).endswith("assistant\n<think>\n\n</think>\n\n")
    with pytest.raises(Unrenderable):
        model(R1).renderer.opening(WHERE)


@pytest.mark.parametrize("begin", ["", "<think>\n"])
def test_thoughts_among_the_ids_of_an_engine_are_not_taught(model: Callable[..., Model], begin: str) -> None:
    renderer = model(thinking(begin=begin)).renderer
    whole = renderer.conversation(
        WHERE, (), NORTH | {"reasoning_content": "The map\n\nsays north."}, True, 2048
    )
    prompt = tuple(renderer.prompt(WHERE))
    ids = (*whole.prompt[len(prompt) :], *whole.reply)
    assert renderer.sampled(prompt, ids) == whole
    empty = renderer.conversation(WHERE, (), NORTH | {"reasoning_content": ""}, True, 2048)
    assert renderer.sampled(empty.prompt, empty.reply) == empty
    with pytest.raises(Unrenderable, match="in the midst of"):
        renderer.sampled(prompt, ids[:4])


def test_only_the_models_own_answers_may_hide_thoughts(model: Callable[..., Model]) -> None:
    renderer = model(thinking(begin="<think>\n")).renderer
    of_another = rendered(sample(1, good=True, version=None), renderer, 2048)
    corrected = rendered(sample(1, good=False).with_reply("Rain."), renderer, 2048)
    for tokens in (of_another, corrected):
        assert renderer.text(tokens.prompt).endswith("<think>\n\n</think>\n\n")
    with pytest.raises(Unrenderable, match="aren't in the log"):
        rendered(sample(1, good=True), renderer, 2048)
