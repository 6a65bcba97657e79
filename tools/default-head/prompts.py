"""Writes the prompts that the default model's exit head is trained on.

    python3 prompts.py --gsm8k gsm8k_train.jsonl --mbpp mbpp_sanitized.json --selfspec selfspec --model smollm2-135m --out DIR

DIR gets math.jsonl (questions of GSM8K, MIT), code.jsonl (tasks of MBPP, CC-BY-4.0, as instructions and as functions to complete),
chat.jsonl (templates and topics of this file) and text.jsonl (passages that the model writes here, to be summarised and asked about).
The same arguments give the same files.
"""

import argparse
import json
import pathlib
import random
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

PLACES = """Lisbon|Kyoto|the Scottish Highlands|Mexico City|Cape Town|Iceland|New Orleans|the Amalfi coast|Vancouver|Marrakesh|Buenos Aires|a small
island in Greece|the Dolomites|Istanbul|a national park in Costa Rica|Prague""".replace("\n", " ").split("|")

SCIENCE = """photosynthesis|plate tectonics|natural selection|the greenhouse effect|superconductors|black holes|vaccines|the immune system|DNA replication|
entropy|ocean currents|semiconductors|nuclear fusion|gravity on the Moon|radio waves|osmosis|chemical catalysts|the water cycle|antibiotic resistance|neurons|
the Doppler effect|acids and bases|volcanoes|stem cells|the periodic table|electric motors|lasers|tides|enzymes|comets|sound waves|magnets|mitosis|
the carbon cycle|wind turbines|batteries|earthquakes|the Big Bang|friction|genetic mutation""".replace("\n", " ").split("|")

SOCIETY = """the fall of the Roman Empire|the Industrial Revolution|the printing press|the Silk Road|the French Revolution|inflation|supply and demand|
the United Nations|women's suffrage|the Cold War|globalisation|democracy in ancient Athens|the Renaissance|unemployment|monopolies|freedom of speech|
stoicism|utilitarianism|the Enlightenment|urbanisation|migration|colonialism|minimum wages|public education|social media|the Marshall Plan|trade unions|
existentialism|the Ottoman Empire|the Black Death|central banks|human rights|Impressionism|jazz|epic poetry|Buddhism|the abolition of slavery|
the moon landing|propaganda|taxation""".replace("\n", " ").split("|")

DAILY = """learning to play the guitar|saving money for a house|starting a vegetable garden|training for a half marathon|moving to another city|adopting a dog|
working from home|cooking for a large family|sleeping better|planning a wedding|preparing for a job interview|learning Spanish|reducing screen time|
writing a first novel|running a small bakery|managing stress before exams|repairing a bicycle|organising a book club|buying a used car|
raising bilingual children|hiking alone|baking sourdough bread|volunteering at a shelter|learning to swim as an adult|building a birdhouse|
taking better photographs|drinking enough water|public speaking|choosing a laptop|keeping a diary|growing tomatoes on a balcony|meditation|
asking for a raise|making new friends|eating less meat|playing chess|travelling with a baby|teaching a child to read|painting a room|
dealing with a difficult neighbour""".replace("\n", " ").split("|")

PEOPLE = """a lighthouse keeper|a retired astronaut|a shy librarian|a medieval blacksmith|a detective in a small town|a robot that learns to paint|a travelling musician|
a young marine biologist|the captain of a sailing ship|a grumpy wizard|a chef who lost the sense of taste|a night-shift nurse|an old clockmaker|
a talking cat|a queen in exile|a taxi driver|a time traveller from 1920|a beekeeper|a ghost in a theatre|a stand-up comedian|Sherlock Holmes|
Marie Curie|Leonardo da Vinci|a football coach|a mountain guide|a pirate|an alien tourist|a gardener at a palace|a wise grandmother|a mayor""".replace("\n", " ").split("|")

PRODUCTS = """a reusable coffee cup|a language-learning app|an electric bicycle|a children's museum|noise-cancelling headphones|a subscription for house plants|
a smart thermostat|a farmers' market|a fitness tracker|an online course on statistics|a recipe app|a standing desk|a city's bike-sharing service|a board game|
a solar charger|a podcast on history|handmade candles|a translation service|a meal kit|a robot vacuum cleaner""".replace("\n", " ").split("|")

PROGRAMS = """reverses a linked list|finds the longest palindrome in a string|merges two sorted lists|counts the words in a text file|checks whether a number is prime|
computes the greatest common divisor|sorts a list of dictionaries by a key|parses a date in ISO format|removes duplicates from a list but keeps the order|
converts Roman numerals to integers|finds the two numbers in a list that add up to a target|implements a stack with a minimum|validates an e-mail address|
generates all permutations of a string|computes a moving average|transposes a matrix|finds the most frequent element|implements binary search|
flattens a nested list|checks whether brackets are balanced|computes the edit distance of two words|counts vowels|rotates an array by k places|
simulates a bank account|reads a CSV file and prints totals by column|finds all anagrams in a list|implements quicksort|draws a triangle of stars|
converts Celsius to Fahrenheit|finds the shortest path in a grid|encodes text with a Caesar cipher|computes compound interest|finds missing numbers in a sequence|
groups words by their first letter|implements a queue with two stacks|multiplies two matrices|computes the n-th Fibonacci number|finds leap years|
splits a list into chunks|checks whether two rectangles overlap""".replace("\n", " ").split("|")

LANGUAGES = ["Python", "Python", "Python", "JavaScript", "C++", "Java", "Rust"]

WRITING = [
    "Write a short story about {people} who finds a letter. Keep it under 200 words.",
    "Write an email to a colleague about {daily}. Keep it friendly and short.",
    "Write a blog post of three paragraphs about {daily}.",
    "Write a persuasive paragraph for {product}.",
    "Write a review of {product} that is honest about its weak points.",
    "Describe {place} in the early morning, with sights, sounds and smells.",
    "Draft a speech of two minutes on {society} for a school event.",
    "Write a product description for {product} with a headline.",
    "Write a poem of four stanzas about {daily}.",
    "Compose a letter of thanks from {people} to a stranger.",
    "Write the opening paragraph of a novel that is set in {place}.",
    "Write an announcement: our company launches {product}.",
    "Rewrite this sentence more politely: \"I need the report on {society} today.\"",
    "Write a dialogue between {people} and {people2} about {daily}.",
    "Write a cover letter for a job at a company that makes {product}.",
    "Write a short essay on whether {society} still matters today.",
    "Write a limerick about {people}.",
]
ROLEPLAY = [
    "Pretend to be {people}. What do you think about {daily}?",
    "You are {people}. Introduce yourself to a group of children.",
    "Act as an experienced teacher and explain {science} with an analogy.",
    "Imagine that you are {people} and answer: what was the hardest day of your life?",
    "Play the part of {people} who gives advice on {daily}.",
    "Take on the role of a guide in {place}. What do you show us first?",
    "Speak as {people} would: is {society} good or bad?",
    "You are a career adviser. I am interested in {daily}. What do you suggest?",
    "{people} meets {people2} at a bus stop. Write what they say.",
]
REASONING = [
    "If all bakers wake up early and Tom is a baker who lives in {place}, does Tom wake up early? Explain your reasoning.",
    "A train leaves {place} at 9:00 and needs 3 hours and 40 minutes. When does it arrive?",
    "Anna is taller than Ben, and Ben is taller than Carla. Who is the shortest? Explain.",
    "What are the arguments for and against {daily}? Decide at the end.",
    "Which of these does not belong with the others: {science}, {science2}, {daily}? Say why.",
    "A drawer holds {n} black and {m} white socks. How likely is it that the first one is black?",
    "It rained on {n} of the last {m} days. Does it have to rain tomorrow? Explain.",
    "Is the following argument valid? Everyone who likes {daily} is patient. Maria is patient. So Maria likes {daily}.",
    "How would the world be different without {science}?",
    "Compare {society} and {society2}: what do they have in common?",
    "Three friends share {n} apples and {m} pears equally. What is left over?",
]
MATH = [
    "Solve for x: {n}x + {m} = {k}.",
    "What is {n} percent of {k}?",
    "The sides of a triangle are {n}, {m} and {m}. What is its perimeter?",
    "Given f(x) = {n}x^2 - {m}x + 1, find f(3).",
    "A store sells a pen for {n} dollars and a notebook for {m} dollars. How much do 3 pens and 2 notebooks cost?",
    "What is the area of a rectangle of {n} by {m} metres?",
    "The sum of two numbers is {k} and their difference is {n}. What are they?",
    "If a car drives {k} miles in {n} hours, what is its average speed?",
    "Find the average of {n}, {m} and {k}.",
    "How many ways are there to choose 2 of {n} people?",
    "A tank holds {k} litres and loses {n} litres an hour. How long does it last?",
    "Simplify ({n}a + {m}b) - ({m}a - {n}b).",
    "What is the remainder when {k} is divided by {n}?",
]
CODING = [
    "Write a {language} program that {program}.",
    "Write a function in {language} that {program}. Include a short example.",
    "Implement a {language} function that {program}, and explain its time complexity.",
    "How can I write code in {language} that {program}?",
    "Explain step by step how a program {program}.",
    "Write unit tests for a Python function that {program}.",
    "Create a small {language} class that {program}.",
]
STEM = [
    "What is {science}, and how does it work?",
    "Explain {science} to a ten-year-old.",
    "What is the difference between {science} and {science2}?",
    "Describe the process behind {science} and name three applications.",
    "Why is {science} important for life on Earth?",
    "How was {science} discovered, and by whom?",
    "Design an experiment that shows {science}.",
    "What are common misconceptions about {science}?",
    "List five facts about {science}.",
    "How do engineers make use of {science}?",
]
HUMANITIES = [
    "Provide an overview of {society} and its consequences.",
    "How did {society} influence {society2}?",
    "Discuss the role of {society} in modern society.",
    "What were the main causes of {society}? Use bullet points.",
    "Write three quiz questions on {society}, with answers.",
    "Explain {society} and give two examples from history.",
    "What can we learn today from {society}?",
    "Name a book about {society} and say what it argues.",
    "Write a short essay on {society} from the point of view of {people}.",
    "Describe {society} in simple terms.",
]
DAILY_QUESTIONS = [
    "Give me five tips for {daily}.",
    "What should I know before {daily}?",
    "Make a weekly plan for {daily}.",
    "What are the benefits of {daily}?",
    "I am thinking about {daily}, but I have little time. What do you recommend?",
    "Plan a trip of three days to {place}.",
    "What is the best time of the year to visit {place}, and why?",
    "Can you recommend a gift for {people}?",
    "What are the pros and cons of {product}?",
    "How do I explain {daily} to my parents?",
    "List the steps of {daily}.",
]
EXTRACTION = [
    "Extract the names and prices from this text as a list: \"{product} costs {n} dollars, {product2} costs {m} dollars, and delivery is free.\"",
    "Find the numbers in this text and add them up: \"In {place} we met {n} musicians and {m} painters.\"",
    "Return the following as JSON with the keys name, place and age: Anna, who is {n}, lives in {place}.",
    "Identify the main topic and the mood of this sentence: \"After {daily}, nothing felt the same in {place}.\"",
    "List all nouns: \"The guide in {place} told the visitors about {society} and the weather.\"",
    "Put these in alphabetical order: {science}, {society}, {daily}.",
    "Is this customer happy? \"I bought {product} in {place}, and it broke after {n} days.\"",
    "Make a table of these people with their jobs: {people}, {people2}, {people3}.",
    "Give the dates and places as a list: \"Born on {n} May in {place}, she moved to {place} in 19{m}.\"",
]
QUESTIONS = [
    "who first described {science}",
    "when did {society} begin",
    "where is {place}",
    "what is the main idea of {society}",
    "what is {science} used for",
    "how long does {daily} take",
    "what does {science} mean",
    "which country is known for {society}",
]
CHAT = {
    "writing": WRITING, "roleplay": ROLEPLAY, "reasoning": REASONING, "math": MATH, "coding": CODING, "stem": STEM,
    "humanities": HUMANITIES, "daily": DAILY_QUESTIONS, "extraction": EXTRACTION, "qa": QUESTIONS,
}

OPENINGS = [
    "{place} (AP) - Officials said on Monday that {society}",
    "LONDON - A new study on {science} has found",
    "Scientists who work on {science} announced this week",
    "The city council of {place} voted on Tuesday to",
    "After years of {daily}, {people} from {place} has",
    "Police in {place} are looking for {people} who",
    "The club confirmed on Friday that its coach, once {people},",
    "(CNN) The history of {society} is told in a new exhibition in {place}, where",
    "A company that makes {product} said its sales",
    "{society} is usually dated to",
    "In {place}, the weather this spring has",
    "{science} is a subject that",
]
TASKS = [
    ("summary", "Summarize: {text}"), ("summary", "Summarize: {text}"), ("summary", "{text}\n\nSummarize the text above in three sentences."),
    ("rag", "{text}\n\nAnswer with the text above: what is it about?"), ("rag", "{text}\n\nWho is mentioned in the text, and what do they do?"),
    ("rag", "Use this passage to answer the question.\n\n{text}\n\nQuestion: what happened, and where?\nAnswer:"),
]


def fill(random, template):
    """The template with random topics."""
    some = lambda values: random.choice(values).strip()
    topics = {
        "place": some(PLACES), "science": some(SCIENCE), "science2": some(SCIENCE), "society": some(SOCIETY), "society2": some(SOCIETY),
        "daily": some(DAILY), "people": some(PEOPLE), "people2": some(PEOPLE), "people3": some(PEOPLE), "product": some(PRODUCTS),
        "product2": some(PRODUCTS), "program": some(PROGRAMS), "language": some(LANGUAGES),
        "n": random.randint(2, 12), "m": random.randint(3, 60), "k": random.randint(60, 900),
    }
    text = template.format(**topics)
    return text[0].upper() + text[1:] if random.random() < 0.9 else text


def chat(random, n):
    """n prompts of the kinds of CHAT, no two the same."""
    seen, lines = set(), []
    kinds = list(CHAT)
    while len(lines) < n:
        kind = kinds[len(lines) % len(kinds)]
        prompt = fill(random, random.choice(CHAT[kind]))
        if prompt not in seen:
            seen.add(prompt)
            lines.append({"prompt": prompt, "category": kind})
    return lines


def code(random, tasks):
    """Each task as an instruction, and as the beginning of a function with its documentation."""
    lines = []
    for task in tasks:
        instruction = task["prompt"]
        if random.random() < 0.5:
            instruction += " Your code should pass these tests:\n" + "\n".join(task["test_list"])
        lines.append({"prompt": instruction, "category": "code"})
        head = re.search(r"def (\w+)\(([^)]*)\)", task["code"])
        if not head:
            continue
        examples = [re.match(r"assert (.*) == (.*)$", test) for test in task["test_list"][:2]]
        shown = "".join(f"    >>> {e[1]}\n    {e[2]}\n" for e in examples if e)
        imports = random.choice(["", "", "from typing import List\n\n\n", "\n\n"])
        lines.append({"prompt": f'{imports}def {head[1]}({head[2]}):\n    """ {task["prompt"]}\n{shown}    """\n', "category": "code"})
    return lines


def passages(random, n, selfspec, model):
    """n passages that the model writes, each from an opening."""
    openings = [fill(random, random.choice(OPENINGS)) for _ in range(n)]

    def write(job):
        i, opening = job
        length = 120 + 37 * i % 360
        command = [selfspec, "run", model, "--raw", "--json", "-t", "1", "--temp", "0.8", "--top-p", "0.95", "--seed", str(i), "-n", str(length)]
        done = subprocess.run([*command, "-p", opening], capture_output=True, text=True, check=True)
        return opening + json.loads(done.stdout)["text"]

    with ThreadPoolExecutor(2) as pool:
        return [text.strip() for text in pool.map(write, enumerate(openings)) if len(text) > 200]


def text_tasks(random, texts):
    lines = []
    for text in texts:
        kind, template = random.choice(TASKS)
        lines.append({"prompt": template.format(text=text), "category": kind})
    return lines


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(f"{path}: {len(lines)} prompts")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gsm8k", type=pathlib.Path, required=True)
    arguments.add_argument("--mbpp", type=pathlib.Path, required=True)
    arguments.add_argument("--selfspec", default="selfspec")
    arguments.add_argument("--model", default="smollm2-135m")
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    arguments.add_argument("--chat", type=int, default=3200)
    arguments.add_argument("--math", type=int, default=1200)
    arguments.add_argument("--texts", type=int, default=700)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    source = random.Random(given.seed)
    questions = [json.loads(line)["question"] for line in given.gsm8k.read_text().splitlines()]
    chosen = source.sample(questions, given.math)
    write(given.out / "math.jsonl", [{"prompt": question, "category": "math"} for question in chosen])
    write(given.out / "code.jsonl", code(source, json.loads(given.mbpp.read_text())))
    write(given.out / "chat.jsonl", chat(source, given.chat))
    texts = passages(source, given.texts, given.selfspec, given.model)
    write(given.out / "text.jsonl", text_tasks(source, texts))


if __name__ == "__main__":
    main()
