"""Everyday questions, all distinct, and a system message for programs that want short answers."""

import re

BRIEFLY = "Answer in one short sentence"

_TEXT = """
What is a volcano? What is an umbrella for? What is snow? What is the tallest mountain? Why do people blush?
Where is the Eiffel Tower? Why do cars need oil? How do vaccines work? What is a calendar for? What is the
sun? What is the fastest land animal? How many months are in a year? Where does milk come from? How do I stop
a nosebleed? Who wrote Romeo and Juliet? How do I ask for a raise? What is the coldest season? How do I fold a
fitted sheet? What instrument has black and white keys? Where do fish live? What is cheese made from? What is
the currency of Japan? Who was Mozart? What do bees make? What is a piano? Why do cats purr? How do fish
breathe under water? What is a glacier? What do you use to cut paper? What is the opposite of hot? What is the
capital of Italy? What is the boiling point of water? What is the color of the sky? Which planet is closest to
the sun? Why do we need vitamins? Which animal barks? What is a good gift for a mother? What is jet lag? Why
do we dream? When does the sun rise? What is a mammal? Why do we get hiccups? How many minutes are in an hour?
Why do plants need sunlight? How do I keep my windows from fogging up? Why is sleep important? Where do
penguins live? What is the hardest mineral? What is a mortgage? What is the point of a resume? What is the
largest animal? What is the shape of a ball? What does a farmer do? What is a baby dog called? What is the
capital of Spain? What do cows eat? What is a good snack? What is a river? What is bread made from? Why is the
ocean salty? How many days are in a week? What is a raincoat? What do you wear on your feet? What do we
breathe? How many legs does a spider have? What language is spoken in Brazil? Why do leaves change color in
autumn? How do elevators work? Who discovered gravity? What do plants need to grow? How do airplanes stay in
the air? How does a microwave heat food? What is a passport for? What is the largest ocean? What goes into an
omelette? What is a noun? Where do bears sleep? How do I choose a ripe avocado? Why does ice float on water?
What does a doctor do? What is a password manager? What is the moon? What does a baker do? What is an heirloom
tomato? How many wheels does a bicycle have? What is tea? How can I make my room feel cozy? What is the
capital of Germany? What is a kangaroo? What makes a good friend? What is the opposite of big? What is ice
made of? Who was Albert Einstein? What is a dictionary for? Why is exercise good for the heart? What is a
group of wolves called? Which fruit is yellow and sour? What color is a banana? What is a library? What is a
violin? How do I keep basil alive indoors? How do I stay calm before an exam? Where is Egypt? How can I save
money on groceries? What is democracy? How can I drink more water every day? Which month comes after May? What
sport uses a racket? What is a desert? What color is grass? Why do stars twinkle? What is an echo? Who painted
the Mona Lisa? What season comes after winter? What is the water cycle? What is a good name for a cat? What is
sourdough? How often should I water a cactus? What is the capital of France? What is a triangle?
"""

QUESTIONS: tuple[str, ...] = tuple(re.findall(r"\S[^?]*\?", " ".join(_TEXT.split())))
