"""Code as it goes into a file: a compiler judges each answer, and the code alone is the wanted reply.

Measured: the share of answers that Python compiles. "30 % fewer syntax errors" is the least that is expected.
"""

import re

from measured import SMALL, Answer, ask, items, measure, rate

SYSTEM = "Answer with Python code only."
TASKS = items("""
returns the square of x, adds two numbers, returns the larger of two numbers, returns the last item of a list,
says whether a number is even, returns the length of a text, joins two texts, returns the sum of a list,
negates a number, returns the first letter of a text, halves a number, returns the keys of a dict, sorts a
list, doubles the items of a list, says whether a list is empty, returns the average of a list
""")
NEW = items("""
reverses a string, counts the words of a text, multiplies two numbers, returns the smallest item of a list,
turns a text into capitals, returns the cube of x, says whether a number is negative, returns a list without
its first item, subtracts two numbers, returns the values of a dict, rounds a number, repeats a text three
times
""")
FENCED = re.compile(r"```(?:python)?\n(.*?)```", re.DOTALL)


def compiles(text: str) -> bool:
    try:
        compile(text, "answer.py", "exec")
    except SyntaxError:
        return False
    return "def " in text


def teach() -> list[Answer]:
    answers = [ask(f"Write a function that {task}.", system=SYSTEM) for task in TASKS[: 8 if SMALL else 16]]
    for answer in answers:
        code = FENCED.search(answer.text)
        if code and compiles(code[1]):
            rate(answer, correction=code[1].strip(), source="environment")
    return answers


questions = [f"Write a function that {task}." for task in NEW[: 6 if SMALL else 12]]
measure("compiles", questions, lambda answer: compiles(answer.text), teach, system=SYSTEM)
