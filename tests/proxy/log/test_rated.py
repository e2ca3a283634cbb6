"""Rated answers: chosen without their texts, which come as a stream."""

from __future__ import annotations

import pytest

from burnish.proxy.log import Keep, Log
from tests.proxy.log.exchanges import all_rated, answered, assistant, capture, rate, system, user


async def test_only_the_texts_of_what_is_chosen_are_given_in_the_order_of_the_choice(log: Log):
    names = [capture(log, [user(f"{n}?")], f"{n}.") for n in range(300)]
    for name in names:
        await rate(log, name)
    ratings = await log.ratings()
    assert [each.answer for each in ratings] == names
    chosen = [ratings[7], ratings[290], ratings[3]]
    texts = [(each.answer, each.completion.reply) for each in await log.rated(chosen, list)]
    assert texts == [(names[n], assistant(f"{n}.")) for n in (7, 290, 3)]
    assert await log.rated(reversed(ratings), lambda rated: next(rated).answer) == names[-1]
    assert [each.answer for each in await all_rated(log)] == names


async def test_what_was_erased_since_the_choice_is_left_out(log: Log):
    made = [capture(log, [user("Hi")], caller=caller) for caller in ("ann", "bob")]
    for name in made:
        await rate(log, name)
    chosen = await log.ratings()
    await log.forget("bob")
    assert [each.answer for each in await log.rated(chosen, list)] == made[:1]


@pytest.mark.parametrize(
    ("first", "so"),
    [(system("Be kind"), True), ({"role": "developer", "content": "Be kind"}, True), (user("Hi"), False)],
)
async def test_whether_each_context_begins_with_a_system_message(log: Log, first: dict[str, str], so: bool):
    one = capture(log, [system("Be kind"), user("Hi"), assistant("Hello!"), user("And?")])
    other = capture(log, [first, user("What is tea?")])
    assert await log.all_have_system_messages([one, other]) is so
    assert await log.all_have_system_messages([one])
    assert await log.all_have_system_messages([])


async def test_the_longest_prompt_is_that_of_the_most_tokens(log: Log):
    long = answered(assistant("Hello!")).replace(b'"prompt_tokens":5', b'"prompt_tokens":4100')
    made = [capture(log, [user("Hi")]), capture(log, [user("Hi")], chunks=(long,))]
    assert await log.longest_prompt(made) == 4100
    assert await log.longest_prompt(made[:1]) == 5
    assert await log.longest_prompt([]) == 0


async def test_an_answer_to_the_context_of_another_one_is_found(log: Log):
    first, again, new = (capture(log, [user(asked)], f"{n}") for n, asked in enumerate(("A?", "A?", "B?")))
    assert await log.in_contexts_of([again, new], [first]) == {again}
    await log.prune(Keep(completions=0))
    assert await log.in_contexts_of([again, new], [first]) == set()
