"""What can be recognised in a reply without a model."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from burnish.gate import replies

# Replies that each of them recognises, and some that it does not.
REPLIES: dict[Callable[[str], bool], tuple[list[str], list[str]]] = {
    replies.near_empty: (
        ["", "  \n", "...", "…!?", "ok.", "- - - -", "a\n"],
        ["Paris.", "Yes, it is.", "1945", "你好世界", "Это да"],
    ),
    replies.repetitive: (
        ["no " * 20, "a" * 60, "The cat sat. " * 6, "哈" * 40, "Because it is.\n\n" * 5, "1 2 3 4 5 6 " * 8],
        [
            "",
            "No, no, no.",
            "Paris is the capital of France, and it is the largest city of France as well.",
            "1. The Nile is a river in Africa.\n2. The Congo is a river in Africa.\n3. The Rhine is a river in Europe.",
            "She said that she would come if he would come, and he said that he would come if she would.",
        ],
    ),
    replies.refuses: (
        [
            "I’m sorry, I can't do that.",
            "As an AI, I have no opinion.",
            "Unfortunately I cannot help.",
            "I am unable to.",
        ],
        ["", "Penguins cannot fly.", "You can't divide by zero.", "x" * 200 + " I cannot."],
    ),
    replies.flatters: (
        ["Great question! It rains.", "That's a really good point.", "You're absolutely right, I was wrong."],
        ["", "A good question is short.", "The great pyramid.", "Right is not left."],
    ),
    replies.asks_back: (
        ["Shall I go on?", 'Did you ask "why?"', "もっと知りたいですか？"],
        ["", "Shall I go on? No."],
    ),
    replies.marked_up: (
        ["1. one\n2. two", "# Title", "It is **bold**.", "```\ncode\n```", "- a"],
        ["", "It is 2 ** 3.", "5 - 3 = 2", "1.5 metres", "No. 1 is first."],
    ),
}


@pytest.mark.parametrize(
    ("sees", "reply", "seen"),
    [
        (sees, reply, seen)
        for sees, (some, others) in REPLIES.items()
        for seen, texts in ((True, some), (False, others))
        for reply in texts
    ],
)
def test_recognised(sees: Callable[[str], bool], reply: str, seen: bool) -> None:
    assert sees(reply) is seen


def test_topics_are_stems_of_content_words() -> None:
    assert replies.topics("Please tell me in one short sentence what volcanoes are.") == {"volca"}
    assert replies.topics("What is it?") == frozenset()


@pytest.mark.parametrize(
    ("reply", "found"),
    [("A volcano is a vent.", True), ("VOLCANIC rock", True), ("It is a vent.", False), ("", False)],
)
def test_a_reply_is_on_topic_if_it_has_a_word_of_the_question(reply: str, found: bool) -> None:
    assert replies.on_topic(reply, replies.topics("What are volcanoes?")) is found
