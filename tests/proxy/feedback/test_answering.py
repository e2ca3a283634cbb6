"""What a /rl command does to the log, and what the user reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from burnish.proxy.access.access import EVERYBODY
from burnish.proxy.feedback import answer_command
from burnish.proxy.feedback.answering import Action
from burnish.proxy.log import Log
from burnish.proxy.log.faults import Rules
from burnish.proxy.records import Feedback, FeedbackDraft
from burnish.proxy.rl.commands import CommandRequest, find_command
from burnish.proxy.rl.own_words import is_answer
from tests.proxy.log.exchanges import CALL, RESULT, all_rated, assistant, capture, system, user
from tests.support.inprocess import behind
from tests.support.upstream import completion, reply

PARIS = [user("capital of France?"), assistant("The capital of France is Paris.")]


@dataclass
class Chat:
    """Types commands at the end of a history, as a client would."""

    log: Log
    history: list[dict[str, Any]]
    actions: Mapping[str, Action] | None = None
    told: list[Feedback] = field(default_factory=list)

    async def type(self, typed: str, caller: str = "local", session: str | None = None) -> str:
        self.history = [*self.history, user(typed)]
        command = find_command(self.history)
        assert command is not None

        async def status() -> str:
            return "3 of 32 ratings"

        answer = await answer_command(
            CommandRequest(command, self.history, caller, session, EVERYBODY),
            self.log,
            rules=Rules({}, "auto", scrub=True),
            status=status,
            on_feedback=self.told.append,
            actions=self.actions,
        )
        assert is_answer(answer), "or a client leaks it into the history of the model"
        self.history = [*self.history, assistant(answer)]
        return answer


@pytest.mark.parametrize(
    ("typed", "said", "stored"),
    [
        ("/rl good", "rated good", {"reward": 1.0, "scale": "binary"}),
        ("/rl 👎 hm", "rated bad with your comment", {"reward": -1.0, "scale": "binary", "comment": "hm"}),
        ("/rl 4", "rated 4 of 5 (Good)", {"reward": 0.5, "scale": "likert"}),
        ("/rl fix Paris\nonly", "saved the reply that you wanted", {"correction": "Paris\nonly"}),
    ],
)
async def test_a_command_rates_the_answer_before_it(log: Log, typed: str, said: str, stored: dict[str, Any]):
    made = capture(log, PARIS[:1], PARIS[1])
    chat = Chat(log, PARIS)
    answer = await chat.type(typed, caller="ann")
    assert answer == f"burnish: {said} – “The capital of France is Paris.” (/rl undo takes it back)"
    (found,) = await log.feedbacks()
    assert chat.told == [found]
    scope: Any = "turn" if "reward" in stored else "completion"
    assert found.draft == FeedbackDraft(made, "rl", rater="ann", scope=scope, **stored)


@pytest.mark.parametrize("typed", ["0", "6", "10", "3.5", "-2", "6/5", "0 too long"])
async def test_points_off_the_scale_rate_nothing_and_the_scale_is_named(log: Log, typed: str):
    capture(log, PARIS[:1], PARIS[1])
    answer = await Chat(log, PARIS).type(f"/rl {typed}")
    number = typed.partition(" ")[0].partition("/")[0]
    points = "1 Terrible, 2 Poor, 3 Okay, 4 Good, 5 Excellent"
    assert answer == f"burnish: nothing was rated: a rating is 1 to 5, not {number}: {points}"
    assert await log.feedbacks() == []


async def test_undo_takes_the_last_own_rating_back(log: Log):
    made = capture(log, PARIS[:1], PARIS[1])
    chat = Chat(log, PARIS)
    await chat.type("/rl good")
    await chat.type("/rl bad")
    await chat.type("/rl 3", caller="bob")
    assert "taken back" in await chat.type("/rl undo")
    assert (await log.completion(made)).rating == 0.5
    assert "taken back" in await chat.type("/rl undo")
    assert (await log.completion(made)).rating == 0.0
    assert "no rating to take back" in await chat.type("/rl undo")


async def test_undo_reaches_back_over_the_turns_of_the_conversation(log: Log):
    first = capture(log, PARIS[:1], PARIS[1])
    elsewhere = capture(log, [user("capital of Chad?")], "N'Djamena.")
    await Chat(log, [user("capital of Chad?"), assistant("N'Djamena.")]).type("/rl good")
    chat = Chat(log, PARIS)
    await chat.type("/rl good")
    second = capture(log, [*PARIS, user("and of Spain?")], "Madrid.")
    chat.history += [user("and of Spain?"), assistant("Madrid.")]
    await chat.type("/rl bad", caller="bob")
    paris = "“The capital of France is Paris.”"
    assert await chat.type("/rl undo") == f"burnish: taken back; no rating counts for it now – {paris}"
    nothing = await chat.type("/rl undo")
    assert nothing == "burnish: you have no rating to take back on “Madrid.” or before it"
    rated = [(await log.completion(each)).rating for each in (first, second, elsewhere)]
    assert rated == [None, -1.0, 1.0], "neither another's, nor one of another conversation"


async def test_undo_takes_back_what_was_said_last_not_what_is_said_of_the_last(log: Log):
    first = capture(log, PARIS[:1], PARIS[1])
    second = capture(log, [*PARIS, user("and of Spain?")], "Madrid.")
    chat = Chat(log, [*PARIS, user("and of Spain?"), assistant("Madrid.")])
    await chat.type("/rl good")
    await log.add_feedback(FeedbackDraft(first, "completion_id", reward=-1.0, scale="binary"))
    assert "Paris" in await chat.type("/rl undo")
    assert "Madrid" in await chat.type("/rl undo")
    assert [(await log.completion(each)).rating for each in (first, second)] == [None, None]


async def test_what_stands_below_a_good_rating_is_neither_taken_nor_lost(log: Log):
    made = capture(log, PARIS[:1], PARIS[1])
    chat = Chat(log, PARIS)
    rest = "Now translate it:\n\n    bonjour\n\nburnish: rated"
    answer = await chat.type(f"/rl good clear\n\n{rest}")
    begin, _, below = answer.partition("Send it again:\n")
    assert begin.startswith("burnish: rated good with your comment")
    assert "\n".join(line.removeprefix("  ") for line in below.splitlines()) == rest
    assert (await log.feedbacks(completion_id=made))[0].draft.comment == "clear"
    await chat.type("/rl bad Too long.\n\nToo formal.")
    assert (await log.feedbacks(limit=1))[0].draft.comment == "Too long.\n\nToo formal."
    unknown = await Chat(log, [user("a"), assistant("never logged")]).type("/rl good\n\nGo on.")
    assert "nothing was rated" in unknown
    assert unknown.endswith("Send it again:\n  Go on.")


async def test_a_turn_of_many_calls_is_rated_whole_and_a_correction_is_of_its_answer(log: Log):
    history = [user("do it"), CALL, RESULT]
    made = [capture(log, history[:1], CALL), capture(log, history, "Done.")]
    chat = Chat(log, [*history, assistant("Done.")])
    assert "“Done.”" in await chat.type("/rl good")
    assert [each.completion.id for each in await all_rated(log)] == made
    await chat.type("/rl undo")
    assert await all_rated(log) == []
    await chat.type("/rl fix It is done.")
    (rated,) = await all_rated(log)
    assert (rated.completion.id, rated.correction) == (made[1], "It is done.")


async def test_the_conversation_goes_on_as_if_nothing_was_typed(log: Log):
    capture(log, PARIS[:1], PARIS[1])
    chat = Chat(log, PARIS)
    await chat.type("/rl good")
    second = capture(log, [*PARIS, user("and of Spain?")], "Madrid.")
    chat.history += [user("and of Spain?"), assistant("Madrid.")]
    assert "“Madrid.”" in await chat.type("/rl bad")
    assert (await log.completion(second)).rating == -1.0
    assert len({each.conversation_id for each in await log.completions()}) == 1


async def test_long_answers_and_tool_calls_are_quoted_shortly(log: Log):
    capture(log, [user("a")], "word\n" * 100)
    assert "word word…” (" in await Chat(log, [user("a"), assistant("word\n" * 100)]).type("/rl good")
    capture(log, [user("b")], CALL)
    assert "a tool call" in await Chat(log, [user("b"), CALL, RESULT]).type("/rl good")


@pytest.mark.parametrize("typed", ["/rl", "/rl help", "/rl nonsense", "/rl train", "/rl rollback base"])
async def test_help_names_every_command_and_what_was_not_understood(log: Log, typed: str):
    answer = await Chat(log, PARIS).type(typed)
    assert await log.feedbacks() == []
    assert all(f"/rl {name}" in answer for name in ("good", "bad", "1", "fix", "undo", "status", "help"))
    argument = typed.removeprefix("/rl").removeprefix(" help").strip()
    assert ("unknown command" in answer) == (argument in ("6", "nonsense"))
    assert ("`owners`" in answer) == (argument in ("train", "rollback base"))
    assert "/rl train  " not in answer


async def test_an_owners_commands_are_carried_out_and_listed(log: Log):
    async def roll_back(argument: str) -> str:
        return f"rolled back to {argument}"

    chat = Chat(log, [], {"rollback": roll_back})
    assert await chat.type("/rl rollback base") == "burnish: /rl rollback: rolled back to base"
    assert "/rl rollback" in await chat.type("/rl help")
    assert "Only owners may use /rl train" in await chat.type("/rl train")
    assert await chat.type("/rl status") == "burnish: /rl status: 3 of 32 ratings"


async def test_without_an_answer_or_the_right_one_nothing_is_rated(log: Log):
    assert "nothing was rated: there is no answer" in await Chat(log, []).type("/rl good")
    unknown = await Chat(log, [user("a"), assistant("never logged")]).type("/rl good")
    assert "did not come through burnish" in unknown
    capture(log, PARIS[:1], PARIS[1])
    assert "needs the reply" in await Chat(log, PARIS).type("/rl fix")
    assert await log.feedbacks() == []


async def test_an_ambiguous_answer_lists_what_it_may_be(log: Log):
    made = [capture(log, [user(f"is it {n}?")], "Yes.") for n in range(2)]
    answer = await Chat(log, [system("x"), user("summary"), assistant("Yes.")]).type("/rl good")
    assert await log.feedbacks() == []
    assert all(each in answer for each in made)


# Over HTTP, as an agent's hook sends it


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with behind(tmp_path, reply(completion("Tea is a drink."))) as (client, _):
        yield client


async def ask(client: httpx.AsyncClient, session: str) -> str:
    asked = {"model": "m", "messages": [{"role": "user", "content": f"What is tea, {session}?"}]}
    headers = {"x-claude-code-session-id": session}
    answer = await client.post("/v1/chat/completions", json=asked, headers=headers)
    return answer.headers["x-burnish-completion-id"]


async def typed(client: httpx.AsyncClient, text: Any, session: str | None = None) -> httpx.Response:
    headers = {"x-burnish-session": session} if session else {}
    return await client.post("/burnish/command", json={"text": text}, headers=headers)


async def test_a_command_means_the_last_answer_of_its_session(client: httpx.AsyncClient):
    first, second = await ask(client, "one"), await ask(client, "two")
    said = (await typed(client, "/rl bad too long", "one")).json()
    assert said["object"] == "command"
    assert said["answer"].startswith("burnish: rated bad with your comment – “Tea is a drink.”")
    await typed(client, "/rl 5")
    listed = (await client.get("/v1/feedback")).json()["data"]
    ratings = [(each["completion_id"], each["reward"], each["comment"]) for each in listed]
    assert ratings == [(second, 1.0, None), (first, -1.0, "too long")]
    assert "taken back" in (await typed(client, "/rl undo", "one")).json()["answer"]
    assert "rated" in (await typed(client, "/rl status")).json()["answer"]
    assert "unknown command" in (await typed(client, "/rl nonsense")).json()["answer"]
    assert "nothing was rated" in (await typed(client, "/rl good", "three")).json()["answer"]


@pytest.mark.parametrize("text", ["good", "", "/rlgood", 5, None])
async def test_what_is_no_command_is_refused(client: httpx.AsyncClient, text: Any):
    refused = await typed(client, text)
    assert refused.status_code == 422
    assert refused.json()["error"]["param"] == "text"
