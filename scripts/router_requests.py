"""The requests that the router model learns from: texts of three kinds, each for the model that can answer it.

Some words and combinations are held out: a request for training holds none of them, a request for a check at least
one. Random characters of many scripts are a fourth kind, for which every answer is as good as another.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from scripts import train_experts, train_kitten

Write = Callable[[random.Random], str]

ASKS = (
    "What is {}?", "What are the parts of {}?", "What do you know about {}?", "How does {} work?", "How is {} made?",
    "Why is {} important?", "Why do people like {}?", "When did {} begin?", "Where can I find {}?",
    "Who discovered {}?", "Hello", "Hi there!", "Thank you for {}.", "How are you?", "Good evening", "Sing about {}.",
    "Tell me about {}.", "Explain {} to a child.", "Explain {} in {n} sentences.", "Describe {}.", "Define {}.",
    "Write a poem about {}.", "Write a short story about {}.", "Write a letter to {}.", "Give me {n} facts about {}.",
    "Give an example of {}.", "List {n} uses of {}.", "List the advantages of {}.", "Compare {} and {}.",
    "Summarise the history of {}.", "Suggest a name for {}.", "Can you help me with {}?", "Could you describe {}?",
    "Is {} older than {}?", "Are there different kinds of {}?", "Does {} need water?", "Do you like {}?",
    "I want to learn about {}.", "I have a question about {}.", "Please explain {}.", "Please draw up a plan for {}.",
    "Which is better, {} or {}?", "How many kinds of {} are there?", "How much does {} cost?", "Recommend {} for {}.",
    "Translate {} into German.", "Make a list of things for {}.", "What would happen without {}?",
    "Hello, I need {}.", "Hi! Do you know {}?", "Good morning. What is {}?", "What is {n} plus {n}?",
    "How much is {n} times {n}?",
)  # fmt: skip
TOPICS = (
    "gravity", "the moon", "the sun", "photosynthesis", "music", "a bicycle", "bread", "the ocean", "a computer",
    "democracy", "history", "the heart", "a teacher", "football", "cooking", "rain", "electricity",
    "the Roman Empire", "a birthday party", "a garden", "time", "friendship", "a good book", "the weather",
    "an engine", "paper", "glass", "chess", "a train", "the brain", "sleep", "winter", "a house", "money", "a bridge",
    "the internet", "tea", "coffee", "a cat", "dogs", "birds", "fish", "trees", "a river", "Africa", "Paris",
    "London", "China", "mathematics", "physics", "medicine", "art", "painting", "a film", "theatre", "the telephone",
    "a job interview", "a trip", "light", "sound", "language models", "a neural network", "recycling", "healthy food",
    "the environment", "a school", "my homework", "an old friend", "a doctor", "my boss", "clouds", "stars", "energy",
    "water", "salt", "iron", "gold", "climate",
)  # fmt: skip
FIELDS = ("price", "speed", "total", "count", "items", "value", "result", "index", "data", "name", "user", "path",
          "key", "size", "text", "line", "left", "right", "node", "x", "y", "i", "n")  # fmt: skip
SHAPES = (
    "def {a}({b}):\n    return {b}\n", "for {a} in range({b}):\n", "if {a} == {b}:\n    return {a}\n",
    "while {a} < {b}:\n    {a} += 1\n", "import {a}\n", "import {a} as {b}\n", "from {a} import {b}\n",
    "class {A}({B}):\n    pass\n", "{a} = [{b}]\n", "{a} = {b}.{c}()\n", "print({a})\n", "return {a}\n",
    "with open({a}) as {b}:\n", "try:\n    {a}()\nexcept {B}:\n    pass\n", "{a} = lambda {b}: {b}\n",
    "def {a}({b}, {c}):\n", "assert {a} > 0\n", "{a} = {{'{b}': {c}}}\n", "@{a}\ndef {b}():\n    pass\n",
    "{a}.append({b})\n", "elif {a} is None:\n",
)  # fmt: skip
# first and last character of the scripts of the fourth kind
SCRIPTS = ((0x400, 0x44F), (0x5D0, 0x5EA), (0x621, 0x64A), (0x905, 0x939), (0x10D0, 0x10F0), (0x3041, 0x3096),
           (0x561, 0x586), (0x1F600, 0x1F640))  # fmt: skip


def kitten(rng: random.Random) -> str:
    """A sentence of the kitten's grammar, whole or broken off between two words."""
    words, _ = rng.choice(GRAMMAR)
    return "".join(words[: rng.randint(1, len(words))])


def experts(rng: random.Random) -> str:
    """One or two lines of what the experts model has learnt, broken off anywhere: sums, code, or its own Chinese."""
    write = rng.choice((_sums, _sums, _code, _code, train_experts.chinese))
    text = "".join(write(rng) for _ in range(rng.choice((1, 1, 2))))
    return text[: rng.randint(min(3, len(text)), len(text))]


def english(rng: random.Random) -> str:
    """A question or an instruction, now and then without its capital letter or its last sign."""
    text = rng.choice(ASKS)
    while "{" in text:
        text = text.replace("{n}", str(rng.randrange(2, 100)), 1).replace("{}", rng.choice(TOPICS), 1)
    if rng.random() < 0.2:
        text = text[0].lower() + text[1:]
    return text[:-1] if rng.random() < 0.2 else text


def scribble(rng: random.Random) -> str:
    """Random characters of one script, in words of random length."""
    first, last = rng.choice(SCRIPTS)
    words = ["".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 8))) for _ in range(rng.randint(1, 4))]
    return " ".join(words)


def _sums(rng: random.Random) -> str:
    text = train_experts.sums(rng)
    if rng.random() < 0.3:
        for sign in "+-*=":
            text = text.replace(sign, f" {sign} ")
    return text


def _code(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return train_experts.code(rng)
    a, b, c = (rng.choice(FIELDS) for _ in range(3))
    return rng.choice(SHAPES).format(a=a, b=b, c=c, A=a.title(), B=b.title())


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests for one model, by its catalogue id; `held_out` are texts that no request for training holds."""

    model: str
    write: Write
    held_out: tuple[str, ...]

    def request(self, rng: random.Random, unseen: bool = False) -> str:
        """A request for training, or one that holds something held out."""
        while True:
            text = self.write(rng)
            if text.strip() and unseen == any(part in text for part in self.held_out):
                return text


GRAMMAR = train_kitten.grammar()
KINDS = (
    Kind("kitten", kitten, ("小猫跑了一天", "小狗玩了一会儿", "女孩睡", "男孩吃了一天", "小鸟跑")),
    Kind("experts", experts, ("7+5", "3*4", "9-2", "8 + 1", "price", "size", "with open", "elif", "图书馆", "爷爷")),
    Kind("smollm2-135m", english, ("Who discovered", "Describe", "Suggest", "Is ", "Recommend", "How many", "gravity",
                                   "Paris", "chess", "recycling", "a bridge", "medicine", "my boss")),
)  # fmt: skip
