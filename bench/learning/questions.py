"""Everyday questions for benches and tests, all distinct: the demo's and more."""

from burnish.parts.desktop.demo.questions import BRIEFLY, QUESTIONS

_MORE = """
What happens when water freezes?
What is a crowbar used for?
Who was Marie Curie?
Who composed The Four Seasons?
What is a stapler used for?
How do I sharpen a knife?
How do I negotiate the rent?
How do I stop biting my nails?
What happens when you plant a seed?
What is a black hole?
How does a dishwasher work?
Why do mirrors reflect light?
How do I remove a coffee stain?
How do I start a compost pile?
What is copper used for?
How do I sew on a button?
Where is the Sahara?
What is a satellite?
How do I pack a suitcase?
How does a zipper work?
What is a spreadsheet?
Why do elephants have trunks?
How does a submarine work?
How do I fall asleep faster?
Who discovered penicillin?
What happens during an eclipse?
What is vinegar?
What is insurance?
How does a smoke detector work?
Why do oceans taste salty?
What is leather?
How does soap work?
What is gravity?
Why do magnets attract iron?
What is asthma?
What happens when bread is toasted?
What is a haiku?
Where do polar bears live?
Which gas do plants take in?
What is origami?
Who was Florence Nightingale?
What is a coral reef?
Where are the Alps?
How does a vacuum cleaner work?
Which organ pumps blood?
Which sport uses a shuttlecock?
Where do pearls come from?
How do I train a puppy?
Which planet has rings?
What is a rainbow?
How do I bake bread?
What is yoga?
What is an allergy?
What is chlorine used for?
How do I learn to swim?
Where does rice grow?
How do I prepare for an interview?
Which country has the most people?
What is rubber used for?
What is jazz?
What is a sieve used for?
What is a virus?
Why do spiders spin webs?
What is photosynthesis?
What is a tornado?
What is a tide?
What happens when milk turns sour?
What is an algorithm?
What is a metaphor?
What is silk?
Who was Galileo?
What is caffeine?
What is a tsunami?
How do I read a map?
How do I make iced tea?
What is meditation?
How do I boil an egg?
How does a credit card work?
What is inflation?
How do I memorize a speech?
What is anemia?
How do I change a flat tire?
What is opera?
Why do bees dance?
What is a tripod used for?
What is a thermometer used for?
Why do deserts get cold at night?
How do I clean my glasses?
What is karate?
What is a lighthouse used for?
How do I iron a shirt?
Where do kangaroos live?
How do I clean a cast iron pan?
Where is the Great Wall?
Which metal is liquid at room temperature?
What is a ladder used for?
Where does chocolate come from?
What is chess?
Why do babies cry?
What is aluminum used for?
Why do zebras have stripes?
What happens when wood burns?
Which animal has the longest neck?
What is a budget?
How does a hot air balloon work?
Why do geese fly in a V?
Why do we forget names?
How do I store potatoes?
What is a fossil?
What is a wheelbarrow used for?
What is tofu?
Who was Cleopatra?
Why do people yawn?
What is a compass?
How do I grow basil indoors?
How do I clean a keyboard?
Which bird cannot fly?
How do I reduce food waste?
Who invented the printing press?
What is olive oil?
How do I calm a crying baby?
What is a fever?
What is a sonnet?
How does a water filter work?
Why do birds sing?
What is a waterfall?
Who invented the telephone?
What is a helmet used for?
Where does rubber come from?
How does a bar code work?
What is yeast?
What is a whistle used for?
What happens when we digest food?
What is concrete?
How do I care for a cactus?
What happens when a volcano erupts?
Why do airplanes fly?
What is a web browser?
How does an elevator work?
How do I paint a wall?
How does a refrigerator work?
What is a calorie?
What is baking soda used for?
What is a corkscrew used for?
What is a palindrome?
What is a constitution?
Why do bats hang upside down?
What is a stethoscope used for?
Why do we sneeze?
How do I say no politely?
What is a comet?
How do I tie a tie?
What is a battery?
What is a telescope?
How does a bicycle lock work?
What is a recession?
What happens when we exercise?
How do I plan a birthday party?
How do I unclog a drain?
What happens when iron rusts?
How does a solar panel work?
What is a marathon?
How does the stock market work?
Why do ships float?
How do I write a cover letter?
Why do some people snore?
Who wrote Don Quixote?
How does a toaster work?
How do I improve my handwriting?
Why do cats like boxes?
What is a pension?
What is a microscope?
Why do onions make us cry?
What is a migraine?
How does a pendulum work?
How do I make friends in a new city?
What is a screwdriver used for?
Where does coffee grow?
What is a magnet?
Which fruit has its seeds on the outside?
What is a barometer used for?
What is cholesterol?
How do I remember my passwords?
What is the equator?
How does wireless charging work?
Why do muscles get sore?
How do I start running?
Why do dogs wag their tails?
How do I plant tomatoes?
How do I choose a bicycle?
How do I back up my photos?
What is a rake used for?
What is an earthquake?
How do I save money each month?
Why do trees have rings?
"""

PROMPTS: tuple[str, ...] = QUESTIONS + tuple(_MORE.split("\n")[1:-1])

__all__ = ["BRIEFLY", "PROMPTS"]
