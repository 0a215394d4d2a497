"""Models that a worker gains and loses while it runs."""

from __future__ import annotations

import msgspec

from mycel.core.model.resources import Capabilities, ServedModel
from mycel.core.model.work import MODEL_SLOT, model_slot


def with_served(has: Capabilities, served: tuple[ServedModel, ...]) -> Capabilities:
    """The same worker, serving exactly these."""
    custom = {name: amount for name, amount in has.custom if not name.startswith(MODEL_SLOT)}
    for model in served:
        custom[model_slot(model.name)] = float(model.slots)
    return msgspec.structs.replace(
        has,
        models=tuple(model.name for model in served),
        custom=tuple(sorted(custom.items())),
        served=served,
    )
