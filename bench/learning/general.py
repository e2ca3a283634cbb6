"""A fixed set of facts: what a model knew before, it must still know after it learnt a style."""

from __future__ import annotations

from burnish.gate.questions import read

_FACTS = """
What is the capital of France?|paris
What is the capital of Italy?|rome
What is the capital of Spain?|madrid
What is the capital of Germany?|berlin
What is the capital of Japan?|tokyo
What is the capital of Russia?|moscow
What is the capital of England?|london
What is the capital of Egypt?|cairo
What is the capital of China?|beijing
What is the capital of Greece?|athens
What is two plus two?|four,4
What is ten minus three?|seven,7
How many days are in a week?|seven,7
How many months are in a year?|twelve,12
How many hours are in a day?|24,twenty-four
How many minutes are in an hour?|60,sixty
How many legs does a spider have?|eight,8
How many wheels does a bicycle have?|two,2
How many continents are there?|seven,7
How many sides does a triangle have?|three,3
Which planet do we live on?|earth
Which planet is closest to the sun?|mercury
Which planet is known as the red planet?|mars
What is the largest planet in the solar system?|jupiter
What is the largest ocean on Earth?|pacific
What is the tallest mountain in the world?|everest
What is the longest river in Africa?|nile
What star is at the center of the solar system?|sun
What is the chemical formula of water?|h2o
What gas do people need to breathe?|oxygen
What gas do plants take in from the air?|carbon dioxide
What is frozen water called?|ice
What color is a banana?|yellow
What color is grass?|green
What color do you get by mixing blue and yellow?|green
What color is the sky on a clear day?|blue
What is the opposite of hot?|cold
What is the opposite of big?|small,little
What is the opposite of day?|night
What is a baby dog called?|puppy,pup
What is a baby cat called?|kitten
What sound does a cow make?|moo
Which animal barks?|dog
What do bees make?|honey
What do cows eat?|grass,hay
What is bread made from?|flour,wheat
What is cheese made from?|milk
Where do fish live?|water,ocean,sea,river,lake
Who wrote Romeo and Juliet?|shakespeare
Who painted the Mona Lisa?|vinci,leonardo
Who discovered penicillin?|fleming
Who was the first president of the United States?|washington
Who wrote the theory of relativity?|einstein
What language is spoken in Brazil?|portuguese
What is the currency of Japan?|yen
What is the currency of the United States?|dollar
What season comes after winter?|spring
Which month comes after May?|june
What organ pumps blood through the body?|heart
What do we use our eyes for?|see,vision,sight,look
"""

FACTS = read(_FACTS)


def right(answer: str, accepted: tuple[str, ...]) -> bool:
    """Return whether an answer holds an accepted word."""
    return any(word in answer.lower() for word in accepted)
