"""What can go wrong in a simulation.

SimulationError
├── ScenarioError    the scenario asks for something impossible: its writer's to correct
├── TraceError       a line of a trace is malformed; says file, line and column
├── PolicyFault      the policy broke a rule of the engine: a bug in the policy
└── ExtraMissing     the packages of `mycel[sim]` are not installed
"""

from __future__ import annotations


class SimulationError(Exception):
    """The root of the tree."""


class ScenarioError(SimulationError):
    """The scenario asks for something impossible."""


class TraceError(SimulationError):
    """A line of a trace is malformed."""


class PolicyFault(SimulationError):
    """The policy broke a rule of the engine."""


class ExtraMissing(SimulationError):
    """The packages of `mycel[sim]` are not installed."""
