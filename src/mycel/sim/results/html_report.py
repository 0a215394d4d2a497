"""One self-contained HTML page about runs: plotly is inside, nothing is fetched."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy
import plotly.graph_objects as go
import plotly.io

from mycel.topology.network_graph import Topology
from mycel.topology.picture import picture

from .run_results import Outcome, interval, summary

POINTS_MAX: Final = 500
GANTT_TASKS_MAX: Final = 1500
MARKS_MAX: Final = 30
LINKS_TOLD: Final = "The redder and thicker a link, the nearer its load is to the busiest one's."
COLUMNS: Final = {
    "policy": "policy",
    "seed": "seed",
    "load": "load",
    "jobs_measured": "jobs",
    "response_mean_s": "mean response (s)",
    "response_p99_s": "p99 (s)",
    "response_over_ideal": "÷ ideal",
    "busy_slots_share": "busy",
    "messages_per_task": "messages a task",
    "local_share": "ran where they arrived",
    "preemptions": "preempted",
    "losses": "lost",
    "jobs_unfinished": "unfinished",
}


def write_report(
    outcomes: Sequence[Outcome], topology: Topology | None, title: str, path: Path
) -> None:
    figures = [
        _completion(outcomes),
        _against_load(outcomes),
        _messages(outcomes),
        _utilisation(outcomes),
        _switches(outcomes[0]),
        _places(outcomes[0]),
        _fragmentation(outcomes),
        _staleness(outcomes),
        _gantt(outcomes[0]),
    ]
    parts = [_head(title), _table(outcomes)]
    if topology is not None:
        parts += [
            "<h2>Load of the links</h2>",
            f"<p>{LINKS_TOLD}</p>",
            picture(topology, _shares(outcomes[0])),
        ]
    is_first = True
    for figure in figures:
        if figure is not None:
            parts.append(plotly.io.to_html(figure, full_html=False, include_plotlyjs=is_first))
            is_first = False
    path.write_text("\n".join([*parts, "</body></html>"]), encoding="utf-8")


def _head(title: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        "<style>body{font-family:sans-serif;max-width:1200px;margin:2em auto}"
        "table{border-collapse:collapse}td,th{padding:.3em .7em;text-align:right;"
        f"border-bottom:1px solid #ddd}}</style></head><body><h1>{escape(title)}</h1>"
    )


def _table(outcomes: Sequence[Outcome]) -> str:
    rows = ["<tr>" + "".join(f"<th>{title}</th>" for title in COLUMNS.values()) + "</tr>"]
    for outcome in outcomes:
        values = summary(outcome)
        cells = "".join(f"<td>{_cell(values.get(key))}</td>" for key in COLUMNS)
        rows.append(f"<tr>{cells}</tr>")
    marks = [text for outcome in outcomes for text in outcome.marks]
    told = "".join(f"<li>{time / 1e9:.3f} s: {escape(text)}</li>" for time, text in marks[:50])
    stopped = any(outcome.interrupted for outcome in outcomes)
    note = "<p><b>Interrupted: these are the results until then.</b></p>" if stopped else ""
    return f"{note}<table>{''.join(rows)}</table><ul>{told}</ul>"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else escape(str(value))


def _figure(title: str, x: str, y: str, **layout: Any) -> Any:
    return go.Figure(layout={"title": title, "xaxis_title": x, "yaxis_title": y, **layout})


def _completion(outcomes: Sequence[Outcome]) -> Any:
    """Short jobs are the half with the shorter longest task; of equal jobs all are short."""
    figure = _figure("Completion of short and long jobs", "response (s)", "share of the jobs")
    for outcome in outcomes:
        longest = outcome.longest_ns[outcome.measured]
        response = outcome.response_s
        if not len(response):
            continue
        short = longest <= numpy.median(longest)
        for name, chosen in (("short", short), ("long", ~short)):
            values = numpy.sort(response[chosen])
            if len(values):
                shares = numpy.linspace(0, 1, min(POINTS_MAX, len(values)))
                figure.add_scatter(
                    x=numpy.quantile(values, shares), y=shares, name=f"{_label(outcome)} {name}"
                )
    return figure


def _against_load(outcomes: Sequence[Outcome]) -> Any | None:
    """With the 95 % interval, where several seeds were run."""
    loads = sorted({outcome.load for outcome in outcomes if outcome.load is not None})
    if len(loads) < 2:
        return None
    figure = _figure("p99 against load", "load", "p99 response (s)")
    for policy in dict.fromkeys(outcome.policy for outcome in outcomes):
        points: list[tuple[float, float, float]] = []
        for load in loads:
            values = [
                float(numpy.percentile(one.response_s, 99))
                for one in outcomes
                if one.policy == policy and one.load == load and len(one.response_s)
            ]
            if values:
                points.append((load, *interval(values)))
        figure.add_scatter(
            x=[point[0] for point in points],
            y=[point[1] for point in points],
            error_y={"type": "data", "array": [point[2] for point in points]},
            name=policy,
        )
    return figure


def _messages(outcomes: Sequence[Outcome]) -> Any:
    figure = _figure("Messages per job", "", "messages ÷ jobs")
    labels = [_label(outcome) for outcome in outcomes]
    figure.add_bar(x=labels, y=[one.messages / len(one.arrival_ns) for one in outcomes])
    return figure


def _utilisation(outcomes: Sequence[Outcome]) -> Any | None:
    if not any(outcome.samples for outcome in outcomes):
        return None
    figure = _figure("Running and waiting tasks, and servers up", "time (s)", "count")
    for outcome in outcomes:
        times = [sample.time_ns / 1e9 for sample in outcome.samples]
        for name in ("tasks_running", "tasks_waiting", "servers_up"):
            values = [getattr(sample, name) for sample in outcome.samples]
            figure.add_scatter(x=times, y=values, name=f"{_label(outcome)} {name}")
    _mark(figure, outcomes[0])
    return figure


def _mark(figure: Any, outcome: Outcome) -> None:
    """Each failure and return; texts at different heights, so that neighbours can be read."""
    for number, (time_ns, text) in enumerate(outcome.marks[:MARKS_MAX]):
        figure.add_vline(
            x=time_ns / 1e9,
            line_dash="dot",
            annotation={"text": text, "yref": "paper", "y": 1.0 - 0.06 * (number % 4)},
        )


def _switches(outcome: Outcome) -> Any | None:
    """Between two samples: where the data went when a switch failed."""
    samples = [sample for sample in outcome.samples if sample.switch_bits]
    if len(samples) < 2:
        return None
    figure = _figure(f"Job data through each switch ({_label(outcome)})", "time (s)", "Gbit/s")
    pairs = list(pairwise(samples))
    for name in samples[0].switch_bits:
        figure.add_scatter(
            x=[later.time_ns / 1e9 for _, later in pairs],
            y=[
                (later.switch_bits[name] - sooner.switch_bits[name])
                / (later.time_ns - sooner.time_ns)
                for sooner, later in pairs
            ],
            name=name,
        )
    _mark(figure, outcome)
    return figure


def _places(outcome: Outcome) -> Any | None:
    """Which tasks ran where their job arrived, which were forwarded, and who was stopped."""
    local = outcome.local
    if local is None:
        return None
    starts = outcome.task_start_ns[outcome.task_start_ns >= 0] / 1e9
    figure = _figure(
        f"Starts and preemptions ({_label(outcome)})", "time (s)", "tasks", barmode="stack"
    )
    size = max(1e-9, float(starts.max(initial=0)) / 60)
    groups = {
        "ran where they arrived": starts[local],
        "were forwarded": starts[~local],
        "were preempted": numpy.array(outcome.preempted_ns) / 1e9,
    }
    for name, times in groups.items():
        figure.add_histogram(x=times, name=name, xbins={"start": 0, "size": size})
    _mark(figure, outcome)
    return figure


def _fragmentation(outcomes: Sequence[Outcome]) -> Any | None:
    if not any(sample.gpus_stranded_milli for one in outcomes for sample in one.samples):
        return None
    figure = _figure("Free GPUs on servers without a free core", "time (s)", "GPUs")
    for outcome in outcomes:
        figure.add_scatter(
            x=[sample.time_ns / 1e9 for sample in outcome.samples],
            y=[sample.gpus_stranded_milli / 1000 for sample in outcome.samples],
            name=_label(outcome),
        )
    return figure


def _staleness(outcomes: Sequence[Outcome]) -> Any | None:
    if not any(len(outcome.belief_ages_ns) for outcome in outcomes):
        return None
    figure = _figure("Age of the beliefs that tasks were forwarded on", "age (s)", "share")
    for outcome in outcomes:
        if len(outcome.belief_ages_ns):
            figure.add_histogram(
                x=numpy.array(outcome.belief_ages_ns) / 1e9,
                histnorm="probability",
                name=_label(outcome),
            )
    return figure


def _gantt(outcome: Outcome) -> Any:
    ended = numpy.flatnonzero(outcome.task_end_ns >= 0)
    order = ended[numpy.argsort(outcome.task_start_ns[ended], kind="stable")][:GANTT_TASKS_MAX]
    figure = _figure(
        f"The first {len(order)} tasks ({_label(outcome)})", "time (s)", "server", showlegend=False
    )
    start = outcome.task_start_ns[order] / 1e9
    figure.add_bar(
        base=start,
        x=outcome.task_end_ns[order] / 1e9 - start,
        y=outcome.task_server[order],
        orientation="h",
        hovertext=[f"job {job}" for job in outcome.task_job[order]],
        marker={"color": outcome.task_job[order] % 20, "colorscale": "Turbo"},
    )
    return figure


def _shares(outcome: Outcome) -> dict[int, float]:
    most = max(outcome.link_share.values(), default=0.0)
    return {link: share / most for link, share in outcome.link_share.items()} if most else {}


def _label(outcome: Outcome) -> str:
    load = "" if outcome.load is None else f" at {outcome.load:g}"
    return f"{outcome.policy}{load}, seed {outcome.seed}"
