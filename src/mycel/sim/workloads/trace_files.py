"""Where traces are: beside the scenario, in `$MYCEL_DATA`, or in `../shared/data`."""

from __future__ import annotations

import os
from pathlib import Path

from mycel.sim.errors import TraceError


def find(name: str, folder: Path) -> Path:
    places = [folder / name]
    if data := os.environ.get("MYCEL_DATA"):
        places.append(Path(data) / name)
    places.append(Path("../shared/data") / name)
    for place in places:
        if place.is_file():
            return place
    looked = ", ".join(str(place.parent) for place in places)
    raise TraceError(
        f"there is no file {name} (looked in {looked}): set MYCEL_DATA to the folder that has it"
    )
