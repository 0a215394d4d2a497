"""The work of the demo: trains a small neural network on two spirals, in plain Python.

`train` is one task. It gets its hyper-parameters as named arguments and returns how well
the network does on points that it has not seen.
"""

from __future__ import annotations

import math
import random
from typing import Any

Point = tuple[float, float, float]
"""x, y and the spiral it belongs to: 0 or 1."""

LEARNING_RATES = (0.03, 0.1, 0.3, 1.0)
HIDDEN_UNITS = (4, 8, 16)
MOMENTA = (0.0, 0.8)
SEEDS = (1, 2)
STEPS_OF_ALL_UNITS = 1_000_000
"""Small networks take more steps, so that all tasks take about as long."""


def grid() -> list[dict[str, Any]]:
    """One set of hyper-parameters for each task."""
    return [
        {"learning_rate": rate, "hidden": hidden, "momentum": momentum, "seed": seed}
        for hidden in HIDDEN_UNITS
        for rate in LEARNING_RATES
        for momentum in MOMENTA
        for seed in SEEDS
    ]


def train(learning_rate: float, hidden: int, momentum: float, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    points = _spirals(chance, 300)
    seen, unseen = points[:200], points[200:]
    network = Network(hidden, chance)
    steps = STEPS_OF_ALL_UNITS // (hidden + 3)
    for step in range(steps):
        rate = learning_rate * (1 - step / steps)
        network.learn(chance.choice(seen), rate, momentum)
    return {
        "accuracy": round(network.accuracy(unseen), 3),
        "training_accuracy": round(network.accuracy(seen), 3),
        "steps": steps,
    }


def _spirals(chance: random.Random, count: int) -> list[Point]:
    points = []
    for number in range(count):
        along = chance.uniform(0.3, 2.2)
        spiral = number % 2
        angle = along * 4.2 + math.pi * spiral + chance.gauss(0, 0.2)
        points.append((along * math.cos(angle), along * math.sin(angle), float(spiral)))
    chance.shuffle(points)
    return points


class Network:
    """Two inputs, one layer of tanh units, one logistic output."""

    def __init__(self, hidden: int, chance: random.Random) -> None:
        self._inner = [[chance.gauss(0, 1.5) for _ in range(3)] for _ in range(hidden)]
        self._outer = [chance.gauss(0, 0.5) for _ in range(hidden + 1)]
        self._inner_speed = [[0.0] * 3 for _ in range(hidden)]
        self._outer_speed = [0.0] * (hidden + 1)

    def output(self, x: float, y: float) -> tuple[float, list[float]]:
        units = [math.tanh(a * x + b * y + c) for a, b, c in self._inner]
        total = self._outer[-1] + sum(w * u for w, u in zip(self._outer, units, strict=False))
        return 1 / (1 + math.exp(-max(-60.0, min(60.0, total)))), units

    def learn(self, point: Point, rate: float, momentum: float) -> None:
        x, y, wanted = point
        found, units = self.output(x, y)
        slope = found - wanted
        step = rate * slope * (1 - momentum)
        outer, speed = self._outer, self._outer_speed
        for number, unit in enumerate(units):
            inner, inner_speed = self._inner[number], self._inner_speed[number]
            back = step * outer[number] * (1 - unit * unit)
            for place, value in enumerate((x, y, 1.0)):
                inner_speed[place] = momentum * inner_speed[place] - back * value
                inner[place] += inner_speed[place]
            speed[number] = momentum * speed[number] - step * unit
            outer[number] += speed[number]
        speed[-1] = momentum * speed[-1] - step
        outer[-1] += speed[-1]

    def accuracy(self, points: list[Point]) -> float:
        right = sum((self.output(x, y)[0] > 0.5) == (wanted > 0.5) for x, y, wanted in points)
        return right / len(points)
