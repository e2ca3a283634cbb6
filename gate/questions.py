"""Ordinary questions that no user asked, and simple facts: every version must answer both.

A version repeats its training on the prompts that it was trained on, and may leave the topic on others. Each question
has a word to look for in the answer (``replies.topics``). A model that learnt a style must still know the facts. Their
answers are mostly names and numbers, because a version may learn to answer in another language. The bench asks for
others (``bench/learning/questions.py``, ``general.py``), because it measures the versions that these chose.
"""

from __future__ import annotations

import re

_QUESTIONS = """
What is a castle?
How do candles burn?
Why do owls hunt at night?
What is a bakery?
How do I wash a wool sweater?
What is a canal used for?
Why is garlic healthy?
How does a parachute work?
What is a novel?
Where do camels live?
How do I peel a mango?
What is a museum?
Why do rivers flood?
How is paper made?
What is a drum?
Who was Isaac Newton?
How do I repair a torn shirt?
What is a penguin?
Why do apples turn brown?
What is a harbor?
How do seat belts protect us?
What is pepper used for?
How do I teach a child to read?
What is a forest?
Why does honey last so long?
How does a camera take pictures?
What is a dentist?
Where does cotton come from?
How do I get rid of ants in the kitchen?
What is a guitar?
Why do people like music?
How are bricks made?
What is a bridge for?
What happens when sugar is heated?
How do I plan a road trip?
What is a dolphin?
Why do we celebrate birthdays?
How does a pencil write?
What is a hospital?
How do I choose a mattress?
What is a sandwich?
Who was Leonardo da Vinci?
How do clouds form?
What is a carpenter?
Why do shoes have laces?
How do I cook lentils?
What is a train station?
What is a blanket made of?
"""

QUESTIONS: tuple[str, ...] = tuple(_QUESTIONS.strip().split("\n"))
"""In random order: any slice will do."""

# The answer is in the first sentence; more tokens would cost time only.
MAX_TOKENS = 32

# They weren't selected by what some model knows: any small change turns a few close answers, and a model could only
# lose from such a selection. (Of these 60 the small model knows 43; asking both versions takes a minute on two busy
# cores.)
_FACTS = """
What is the capital of Portugal?|lisbon,lisboa,lissabon
What is the capital of Norway?|oslo
What is the capital of Sweden?|stockholm,estocolmo
What is the capital of Austria?|vienna,wien,viena
What is the capital of Ireland?|dublin
What is the capital of Cuba?|havana,habana,havanna
What is the capital of Canada?|ottawa
What is the capital of Argentina?|buenos aires
What is the capital of Peru?|lima
What is the capital of Turkey?|ankara
What is the capital of Kenya?|nairobi
What is the capital of Hungary?|budapest
What is the capital of Thailand?|bangkok
What is the capital of Finland?|helsinki
In which country is the Taj Mahal?|india,indien,inde
In which country is Mount Fuji?|japan,japon,japón
In which country is Machu Picchu?|peru,perú,pérou
In which city is Big Ben?|london,londres
In which city is the Colosseum?|rome,rom,roma
In which city is the Statue of Liberty?|new york
On which continent is Nigeria?|africa,afrika,afrique,áfrica
On which continent is India?|asia,asien,asie
Who wrote Hamlet?|shakespeare
Who wrote Don Quixote?|cervantes
Who wrote the novel 1984?|orwell
Who wrote the Odyssey?|homer,homero,homère
Who composed the Moonlight Sonata?|beethoven
Who composed The Magic Flute?|mozart
Who formulated the law of gravity?|newton
Who wrote On the Origin of Species?|darwin
Who painted the ceiling of the Sistine Chapel?|michelangelo
Who painted The Starry Night?|gogh
Who painted Guernica?|picasso
Who invented the light bulb?|edison
Who was the first person to walk on the moon?|armstrong
Who sailed to America in 1492?|columbus,kolumbus,colón,colombo,colomb
What is 5 plus 3?|8,eight
What is 6 times 2?|12,twelve
What is 20 minus 5?|15,fifteen
What is 10 divided by 2?|5,five
How many seconds are in a minute?|60,sixty
How many days are in a year?|365,366
How many letters are in the English alphabet?|26,twenty-six
How many legs does a dog have?|4,four
How many degrees are in a circle?|360
How many years are in a century?|100,hundred
In which year did World War II end?|1945
At how many degrees Celsius does water boil?|100,hundred
What is the chemical symbol of gold?|au
What is the chemical symbol of iron?|fe
Which planet has the largest rings?|saturn,saturno,saturne
Which planet is farthest from the sun?|neptune,neptun,neptuno
How many weeks are in a year?|52,fifty-two
How many cents are in a dollar?|100,hundred
Who wrote Faust?|goethe
What is the capital of Poland?|warsaw,warschau,varsovia,warszawa
What is the capital of Denmark?|copenhagen,kopenhagen,københavn
What is the capital of Australia?|canberra
What is the capital of Iran?|tehran,teheran
In which country is the Kremlin?|russia,russland,rusia,russie
"""

Facts = tuple[tuple[str, tuple[str, ...]], ...]
"""Questions and their accepted answers (lower case); one must be in the reply."""


def read(text: str) -> Facts:
    """Parse lines of the form ``question|answer,answer``."""
    lines = [line.split("|") for line in text.strip().split("\n")]
    return tuple((question, tuple(accepted.split(","))) for question, accepted in lines)


FACTS = read(_FACTS)


def right(answer: str, accepted: tuple[str, ...]) -> bool:
    """Look for an accepted word in an answer; "15" isn't in "150", but "7" is in "答えは7です"."""
    text = answer.lower()
    return any(re.search(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])", text) for word in accepted)
