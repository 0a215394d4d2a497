"""Models that a worker gains and loses while it runs."""

from __future__ import annotations

import msgspec

from mycel.core.model.resources import Capabilities, ServedModel
from mycel.core.model.work import MODEL_SLOT, model_slot


def with_served(has: Capabilities, served: tuple[ServedModel, ...]) -> Capabilities:
    """The same worker, serving exactly these; of those that it promises nobody it only tells."""
    custom = {name: amount for name, amount in has.custom if not name.startswith(MODEL_SLOT)}
    promised = [model for model in served if model.promised]
    for model in promised:
        custom[model_slot(model.name)] = float(model.slots)
    return msgspec.structs.replace(
        has,
        models=tuple(model.name for model in promised),
        custom=tuple(sorted(custom.items())),
        served=served,
    )
