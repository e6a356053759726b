#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes prompts whose answers a LongSpec draft can be trained on, those of models/drafts among them: questions and
tasks about excerpts of the training texts, and small talk about a list of topics.

    tools/make_draft_prompts.py --data train --out prompts.jsonl      # books.jsonl.gz, code.jsonl.gz, ... in train/
    tools/make_draft_prompts.py --data train --out plain.jsonl --plain
    tools/make_draft_prompts.py --data eval --out validation.jsonl --held-out --count 40 --longest 2000

With --plain pieces of the texts themselves, each once. With --held-out the beginnings of the evaluation set's texts, in
order, one of each family in turn, behind their instructions: for validation, never for training.

One JSON object a line, {"prompt": ...} or {"text": ...}, for `longspec features --write`. The same seed and texts give
the same prompts, in an order of which any beginning is a fair sample.
"""

import argparse
import gzip
import itertools
import json
import os
import random

FAMILIES = ("books", "code", "docs", "math", "reports_meetings")
SUMMARY = [
    "Summarize the following text.",
    "Write a short summary of this text.",
    "What are the main points of this passage?",
    "Please give a concise summary of the document below.",
    "Summarize the key findings of the following report.",
    "List the most important facts in the text below.",
    "Write a one-page summary of the following.",
    "Explain the following text in simple words.",
    "What is this text about? Answer in a few paragraphs.",
    "Give me an outline of the following document.",
    "Write an abstract for the following document.",
    "Write an executive summary of the report below.",
    "Turn the following text into bullet points.",
    "What conclusions can be drawn from the following?",
    "Read the text and then describe it in detail.",
    "Summarize the whole meeting.",
    "What did the speakers discuss in the following meeting?",
    "Write a digest of this text.",
]
ASK = [
    "Who is mentioned in the text and what do they do?",
    "What happens in this passage?",
    "Why is this important?",
    "Which problems are described, and how could they be solved?",
    "What would be a good title, and why?",
    "Write three questions about the text and answer them.",
    "Rewrite the text for a child.",
    "Continue the text.",
    "What is the author's opinion?",
    "Compare the main ideas of the text.",
    "What should be done next?",
]
CODE = [
    "Explain what this code does.",
    "Find a bug in this code or suggest improvements.",
    "Write documentation for this code.",
    "Complete this code.",
    "Rewrite this code so that it is easier to read.",
    "Write tests for this code.",
    "Summarize this file.",
]
MATH = [
    "Solve this problem step by step.",
    "Answer the question. Show your work.",
    "",
    "",
    "Solve the problem and give the final answer.",
]
CHAT = [
    "Explain {} to a beginner.",
    "Write a short essay about {}.",
    "What are the advantages and disadvantages of {}?",
    "Give me ten tips on {}.",
    "Write a story about {}.",
    "Write a poem about {}.",
    "Tell me something surprising about {}.",
    "Write a blog post about {}.",
    "How would you teach {} to children?",
    "List five common mistakes people make with {}.",
    "Imagine you are an expert on {}. What would you say to a friend who asks about it?",
    "Draft an email about {} to a colleague.",
    "Write a dialogue between two people who talk about {}.",
    "What is the history of {}?",
    "Describe {} in three paragraphs.",
    "Create a plan for a week on {}.",
    "Answer like a pirate: what is {}?",
    "Why does {} matter today?",
    "Write a Python function that has to do with {}.",
    "Make a table of facts about {}.",
    "Write a speech about {}.",
    "Explain the connection between {} and {}.",
    "Compare {} and {}.",
    "What questions should I ask about {}?",
    "Write a product description related to {}.",
    "Write a critical review of a book about {}.",
]
TOPICS = """
the water cycle|photosynthesis|black holes|the French Revolution|supply and demand|machine learning|
the history of bread|healthy eating|learning a language|public speaking|time management|climate change|renewable energy|
the solar system|Roman roads|jazz music|chess openings|vaccines|the immune system|inflation|personal budgeting|
remote work|gardening in spring|coffee brewing|mountain hiking|a trip to Japan|a trip to Iceland|volcanoes|earthquakes|
the printing press|the Silk Road|impressionist painting|classical architecture|binary search|hash tables|recursion|
sorting algorithms|databases|operating systems|the internet|encryption|quantum computers|probability|prime numbers|
the Pythagorean theorem|calculus|statistics|genetics|evolution|plate tectonics|ocean currents|coral reefs|
bees and pollination|wolves|migratory birds|the human heart|sleep|stress|meditation|exercise for beginners|
marathon training|teamwork|leadership|job interviews|writing a resume|customer complaints|a product launch|
a birthday party|a wedding speech|a lost dog|a lighthouse keeper|a robot that learns to paint|a village by the sea|
a detective in London|a time traveller|a talking tree|a dragon who is afraid of fire|friendship|courage|loneliness|
the changing seasons|autumn leaves|the night sky|city life|a rainy day|the first day of school|electric cars|
public transport|urban planning|recycling|plastic waste|drinking water|nuclear power|solar panels|the stock market|
small businesses|taxes|insurance|democracy|elections|human rights|the United Nations|free trade|immigration|
education systems|homework|school uniforms|social media|video games|privacy|artificial intelligence|space exploration|
the Moon landing|Mars|telescopes|microscopes|bacteria|antibiotics|nutrition labels|vegetarian cooking|chocolate cake|
pasta sauce|soup recipes|table tennis|football tactics|swimming|yoga|poetry|haiku|Shakespeare|Greek mythology|
Norse mythology|fairy tales|film directing|photography|guitar practice|orchestras|opera|dance|fashion|furniture making|
home repair|bicycles|trains|aeroplanes|ships|bridges|skyscrapers|castles|pyramids|ancient Egypt|ancient Greece|
the Middle Ages|the Renaissance|the Industrial Revolution|World War I|the Cold War|the history of computers|
the history of mathematics|philosophy of mind|ethics|logic puzzles|riddles|negotiation|conflict resolution|parenting|
elderly care|pets|horses|fishing|weather forecasts|maps and compasses|camping|survival skills|first aid|
project management|software testing|version control|web design|email etiquette|data visualisation
""".strip("\n").replace("\n", " ").split("|")


class Prompts:
    def __init__(self, data, seed):
        self.random = random.Random(seed)
        self.texts = {}
        for family in FAMILIES:
            with gzip.open(f"{data}/{family}.jsonl.gz", "rt", encoding="utf-8") as file:
                self.texts[family] = [json.loads(line)["text"] for line in file]

    def excerpt(self, family, low, high):
        """Of a random text, from a line's beginning if one is near; lengths are spread evenly over their logarithm."""
        while True:
            text = self.random.choice(self.texts[family])
            size = int(low * (high / low) ** self.random.random())
            whole = len(text) <= size or self.random.random() < 0.3
            begin = 0 if whole else self.random.randrange(len(text) - size)
            line = text.find("\n", begin) + 1
            if begin and 0 < line - begin < 300:
                begin = line
            text = text[begin:begin + size].strip("\n")
            if len(text) >= low * 0.7:
                return text

    def about(self, instructions, family, low, high):
        return {"prompt": self.random.choice(instructions) + "\n\n" + self.excerpt(family, low, high)}

    def chat(self):
        question = self.random.choice(CHAT)
        return question.format(*self.random.sample([topic.strip() for topic in TOPICS], question.count("{}")))

    def one(self, low=300, high=2600):
        draw = self.random.random()
        if draw < 0.34:
            return self.about(SUMMARY, "reports_meetings", low, high)
        if draw < 0.46:
            return self.about(SUMMARY + ASK, "docs", low, high)
        if draw < 0.56:
            return self.about(SUMMARY + ASK, "books", low, high)
        if draw < 0.63:
            instruction = self.random.choice(MATH)
            return {"prompt": (instruction + "\n\n" + self.random.choice(self.texts["math"]).split("\n")[0]).strip()}
        if draw < 0.81:
            return {"prompt": self.chat()}
        if draw < 0.86:
            return self.about(CODE, "code", low, high * 0.8)
        if draw < 0.92:
            return {"text": self.excerpt("code", low, high * 0.8)}
        return {"text": self.excerpt("books", low, high)}


# Characters of a piece, some 1,000 tokens each, and how often a piece is of this family.
PIECE = {"books": 4300, "code": 3600, "docs": 3800, "math": 3200, "reports_meetings": 4300}
SHARE = {"books": .25, "code": .18, "docs": .25, "math": .04, "reports_meetings": .28}
SHORTEST_PIECE = 800


def plain(texts, seed, count):
    """`count` pieces of the texts ({family: [text]}), or as many as there are, families mixed by SHARE."""
    draw = random.Random(seed)
    pieces = {}
    for family, size in PIECE.items():
        cut = (text[begin:begin + size] for text in texts[family] for begin in range(0, len(text), size))
        pieces[family] = [piece for piece in cut if len(piece) > SHORTEST_PIECE]
        draw.shuffle(pieces[family])
    while count > 0 and any(pieces.values()):
        family = draw.choices(list(SHARE), list(SHARE.values()))[0]
        if pieces[family]:
            yield {"text": pieces[family].pop()}
            count -= 1


def held_out(folder, count, longest):
    """`count` prompts of the evaluation set in `folder`, or as many as there are, of `longest` characters of a text."""
    families = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".jsonl.gz"):
            with gzip.open(os.path.join(folder, name), "rt", encoding="utf-8") as file:
                families.append([json.loads(line) for line in file])
    in_turn = [entry for entries in itertools.zip_longest(*families) for entry in entries if entry is not None]
    for entry in in_turn[:count]:
        yield {"prompt": f"{entry['instruction']}\n\n{entry['prompt_text'][:longest]}".strip()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder of the training texts")
    parser.add_argument("--out", required=True)
    parser.add_argument("--count", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--longest", type=int, default=2600, help="characters of an excerpt at most")
    parser.add_argument("--plain", action="store_true", help="pieces of the texts instead of prompts")
    parser.add_argument("--held-out", action="store_true", help="prompts of the evaluation set, which --data names")
    args = parser.parse_args()
    if args.held_out:
        lines = held_out(args.data, args.count, args.longest)
    else:
        prompts = Prompts(args.data, args.seed)
        lines = (plain(prompts.texts, args.seed, args.count) if args.plain
                 else (prompts.one(high=args.longest) for _ in range(args.count)))
    with open(args.out, "w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
