"""Ordinary questions that no user asked, to see how a version answers prompts that it wasn't trained on.

A version repeats its training on the prompts that it was trained on, and may leave the topic on others. Each question
has a word to look for in the answer (``replies.topics``). The bench asks others (``bench/learning/questions.py``),
because it measures the versions that these chose.
"""

from __future__ import annotations

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
