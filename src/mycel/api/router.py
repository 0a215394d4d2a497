"""The one table of routes, from which dispatch, rights, 404, 405 and `/openapi.json` come."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

import msgspec

from mycel.core.rights import ADMIN, CANCEL, READ, SUBMIT
from mycel.core.views import Explanation

from . import openapi
from .answers import answers
from .http.exchange import Handler, Request, answer
from .http.problems import Problem, not_found
from .routes import (
    blob_routes,
    cluster_routes,
    event_routes,
    job_routes,
    log_routes,
    model_routes,
    network_routes,
    node_routes,
    openai_routes,
    result_routes,
    service_routes,
    task_lists,
    task_routes,
    task_submission,
    worker_routes,
)
from .routes.list_filters import FILTERS
from .submission import bodies

OPEN: Final = ""
"""The right to call a route that needs no token."""
_BODY: Final = (400, 408, 413, 415)


class Route(msgspec.Struct, frozen=True):
    method: str
    path: str
    """With at most one parameter: `{name}` is one segment, `{name:path}` all the rest."""
    right: str
    handler: Handler
    summary: str
    answer: type | str
    """The answer's schema, or its media type."""
    body: type | str = ""
    query: tuple[str, ...] = ()
    statuses: tuple[int, ...] = (200,)
    problems: tuple[int, ...] = ()
    takes_key: bool = False
    """`Idempotency-Key` makes a second request the same as the first."""

    @property
    def owned(self) -> str:
        """What its path names, if that belongs to a user."""
        if "{task_id}" in self.path:
            return "task"
        return "job" if "{job_id}" in self.path else ""


async def _describe(request: Request) -> None:
    await answer(request.send, 200, openapi.document(ROUTES))


ROUTES: Final = (
    Route(
        "POST",
        "/api/v1/tasks",
        SUBMIT,
        task_submission.submit_task,
        "Submit a task; with ?wait, answer when it has ended or the time is up",
        answers.TaskAnswer,
        bodies.SingleTaskBody,
        ("wait",),
        (201, 200),
        (*_BODY, 422, 429),
        takes_key=True,
    ),
    Route(
        "GET",
        "/api/v1/tasks",
        READ,
        task_lists.list_tasks,
        "List tasks, newest job first; name, with * and ?, user and times are the jobs'",
        answers.TaskList,
        query=("job", "stage", *FILTERS, "cursor", "limit"),
        problems=(404, 422),
    ),
    Route(
        "GET",
        "/api/v1/tasks/{task_id}",
        READ,
        task_routes.read_task,
        "Read a task",
        answers.TaskAnswer,
        query=("wait",),
        problems=(404, 422),
    ),
    Route(
        "DELETE",
        "/api/v1/tasks/{task_id}",
        CANCEL,
        task_routes.cancel_task,
        "Cancel a task; again is fine",
        answers.TaskAnswer,
        problems=(404, 409, 422),
    ),
    Route(
        "GET",
        "/api/v1/tasks/{task_id}/logs",
        READ,
        log_routes.task_logs,
        "What a task has written; with ?stream one stream as text, with ?follow as it comes: "
        "as server-sent events, or one stream as text",
        answers.LogsAnswer,
        query=("stream", "wait", "follow"),
        problems=(404, 422, 429),
    ),
    Route(
        "GET",
        "/api/v1/tasks/{task_id}/explain",
        READ,
        task_routes.explain_task,
        "Why a task is where it is",
        Explanation,
        problems=(404, 422),
    ),
    Route(
        "GET",
        "/api/v1/tasks/{task_id}/result",
        READ,
        task_routes.read_result,
        "The result of a task that succeeded",
        answers.ResultAnswer,
        query=("wait",),
        problems=(404, 409, 422),
    ),
    Route(
        "POST",
        "/api/v1/jobs",
        SUBMIT,
        job_routes.submit_job,
        "Submit a job, or open one for batches; with ?dry_run, say what would come of it "
        "(a PreviewAnswer), and change nothing",
        answers.JobAnswer,
        bodies.JobBody,
        ("dry_run",),
        statuses=(201, 200),
        problems=(*_BODY, 409, 422, 429),
        takes_key=True,
    ),
    Route(
        "GET",
        "/api/v1/jobs",
        READ,
        job_routes.list_jobs,
        "List jobs, newest first; name may have * and ?, prefix and ending are of the id",
        answers.JobList,
        query=(*FILTERS, "prefix", "ending", "cursor", "limit"),
        problems=(422,),
    ),
    Route(
        "POST",
        "/api/v1/jobs/{job_id}/rerun",
        SUBMIT,
        job_routes.rerun_job,
        "Submit a job once more, as a new one; with ?only=failed, what has not succeeded of it",
        answers.JobAnswer,
        query=("only",),
        statuses=(201, 200),
        problems=(404, 422, 429),
        takes_key=True,
    ),
    Route(
        "GET",
        "/api/v1/jobs/{job_id}",
        READ,
        job_routes.read_job,
        "Read a job",
        answers.JobAnswer,
        query=("wait",),
        problems=(404, 422),
    ),
    Route(
        "DELETE",
        "/api/v1/jobs/{job_id}",
        CANCEL,
        job_routes.cancel_job,
        "Cancel a job",
        answers.JobAnswer,
        problems=(404, 409, 422),
    ),
    Route(
        "POST",
        "/api/v1/jobs/{job_id}/tasks",
        SUBMIT,
        job_routes.append_batch,
        "Append a numbered batch of tasks to an open job; the same batch again changes nothing",
        answers.BatchAnswer,
        bodies.BatchBody,
        statuses=(201, 200),
        problems=(*_BODY, 404, 409, 422, 429),
    ),
    Route(
        "POST",
        "/api/v1/jobs/{job_id}/close",
        SUBMIT,
        job_routes.close_job,
        "No further batch will come",
        answers.JobAnswer,
        problems=(404, 409, 422),
    ),
    Route(
        "GET",
        "/api/v1/jobs/{job_id}/results",
        READ,
        result_routes.stream_results,
        "Results as JSON lines, in the order of commits",
        "application/x-ndjson",
        query=("after", "follow"),
        problems=(404, 422),
    ),
    Route(
        "GET",
        "/api/v1/jobs/{job_id}/logs",
        READ,
        log_routes.job_logs,
        "What a job's tasks write, as it comes, as server-sent events",
        "text/event-stream",
        query=("follow",),
        problems=(404, 422, 429),
    ),
    Route(
        "GET",
        "/api/v1/events",
        READ,
        event_routes.stream_events,
        "What happens, as server-sent events; goes on behind Last-Event-ID, or ?after",
        "text/event-stream",
        query=("job", "task", "kinds", "follow", "after"),
        problems=(404, 422, 429),
    ),
    Route(
        "PUT",
        "/api/v1/blobs/{digest}",
        SUBMIT,
        blob_routes.upload_blob,
        "Upload a file under its digest; goes on after a break with Content-Range",
        blob_routes.BlobAnswer,
        "application/octet-stream",
        statuses=(201,),
        problems=(408, 409, 411, 413, 422, 507),
    ),
    Route(
        "GET",
        "/api/v1/blobs/{digest}",
        READ,
        blob_routes.download_blob,
        "Download a file of your uploads or your jobs; with Range a part of it",
        "application/octet-stream",
        statuses=(200, 206),
        problems=(404, 416, 422, 507),
    ),
    Route(
        "HEAD",
        "/api/v1/blobs/{digest}",
        READ,
        blob_routes.describe_blob,
        "Its size; with 404, Upload-Offset says how much of it has come",
        "application/octet-stream",
        problems=(404, 422),
    ),
    Route(
        "POST",
        "/api/v1/blobs/missing",
        SUBMIT,
        blob_routes.list_missing,
        "Which of these you would have to upload",
        blob_routes.MissingAnswer,
        bodies.MissingBody,
        problems=(*_BODY, 422),
    ),
    Route(
        "GET",
        "/api/v1/workers",
        READ,
        worker_routes.list_workers,
        "List workers",
        worker_routes.WorkerList,
        problems=(422,),
    ),
    Route(
        "GET",
        "/api/v1/models",
        READ,
        model_routes.list_models,
        "List the models that are served",
        model_routes.ModelList,
        problems=(422,),
    ),
    Route(
        "POST",
        "/api/v1/workers/{worker_id}/drain",
        ADMIN,
        worker_routes.drain_worker,
        "Let a worker take no new work; with ?hand_back_after, what still runs after so many "
        "seconds goes back to the queue",
        worker_routes.WorkerAnswer,
        query=("hand_back_after",),
        problems=(404, 409, 422),
    ),
    Route(
        "POST",
        "/api/v1/workers/{worker_id}/resume",
        ADMIN,
        worker_routes.resume_worker,
        "Let a worker that was drained take work again",
        worker_routes.WorkerAnswer,
        problems=(404, 409, 422),
    ),
    Route(
        "GET",
        "/api/v1/services",
        READ,
        service_routes.list_services,
        "List the jobs that keep models up",
        service_routes.ServiceList,
        problems=(422,),
    ),
    Route(
        "GET",
        "/api/v1/peers",
        READ,
        network_routes.list_peers,
        "List connected peers",
        network_routes.PeerList,
        problems=(422,),
    ),
    Route(
        "GET",
        "/api/v1/swarm",
        READ,
        network_routes.show_swarm,
        "How this node stands in its swarm",
        network_routes.SwarmAnswer,
        problems=(422,),
    ),
    Route(
        "POST",
        "/api/v1/swarm/ping",
        READ,
        network_routes.ping,
        "Measure the way to a peer and back",
        network_routes.PingAnswer,
        network_routes.PingBody,
        problems=(*_BODY, 404, 409, 422),
    ),
    Route(
        "GET",
        "/api/v1/token",
        READ,
        node_routes.show_token,
        "What the caller's token allows, and whose it is",
        node_routes.TokenAnswer,
        problems=(422,),
    ),
    Route(
        "POST",
        "/api/v1/revocations",
        ADMIN,
        node_routes.revoke,
        "Take in and spread what the swarm's owner has revoked",
        answers.RevocationsAnswer,
        bodies.RevocationsBody,
        problems=(*_BODY, 422),
    ),
    Route(
        "GET",
        "/api/v1/stats",
        READ,
        worker_routes.show_stats,
        "Totals",
        worker_routes.StatsAnswer,
        problems=(422,),
    ),
    Route(
        "GET",
        "/v1/models",
        READ,
        openai_routes.list_models,
        "The models that workers serve; these five as OpenAI has them",
        "application/json",
    ),
    Route(
        "GET",
        "/v1/models/{name:path}",
        READ,
        openai_routes.read_model,
        "One of them",
        "application/json",
        problems=(404,),
    ),
    *(
        Route(
            "POST",
            f"/v1/{path}",
            SUBMIT,
            openai_routes.call_model,
            summary,
            "application/json",
            problems=(*_BODY, 404),
        )
        for path, summary in (
            ("chat/completions", "Ask a chat model; streams if asked to"),
            ("completions", "Ask a completion model; streams if asked to"),
            ("embeddings", "Ask an embedding model"),
        )
    ),
    Route(
        "POST",
        "/api/v1/clusters",
        OPEN,
        cluster_routes.register,
        "Register a cluster by a registration secret",
        cluster_routes.RegisteredAnswer,
        "application/json",
        statuses=(201,),
        problems=(401, *_BODY, 409, 422),
    ),
    Route(
        "GET",
        "/api/v1/clusters",
        READ,
        cluster_routes.list_clusters,
        "List the clusters that have registered",
        cluster_routes.ClusterList,
    ),
    Route(
        "GET",
        "/api/v1/clusters/{cluster}",
        READ,
        cluster_routes.read_cluster,
        "What is known of a cluster",
        cluster_routes.ClusterAnswer,
        problems=(404,),
    ),
    Route(
        "PUT",
        "/api/v1/cluster/state",
        OPEN,
        cluster_routes.set_state,
        "Change a cluster's state, by its secret; null removes a key",
        cluster_routes.ClusterAnswer,
        "application/json",
        query=("name",),
        problems=(401, *_BODY, 404, 422),
    ),
    Route(
        "PUT",
        "/api/v1/cluster/graph",
        OPEN,
        cluster_routes.replace_graph,
        "Replace a cluster's graph, by its secret",
        cluster_routes.ClusterAnswer,
        "application/json",
        query=("name",),
        problems=(401, *_BODY, 404, 422),
    ),
    Route(
        "PUT",
        "/api/v1/cluster/subsystem",
        OPEN,
        cluster_routes.add_subsystem,
        "Add or replace a subsystem of a cluster, by its secret",
        cluster_routes.ClusterAnswer,
        "application/json",
        query=("name", "subsystem"),
        problems=(401, *_BODY, 404, 422),
    ),
    Route(
        "DELETE",
        "/api/v1/cluster/subsystem",
        OPEN,
        cluster_routes.remove_subsystem,
        "Remove a subsystem of a cluster, by its secret",
        cluster_routes.ClusterAnswer,
        query=("name", "subsystem"),
        problems=(401, 404, 422),
    ),
    Route(
        "POST",
        "/api/v1/cluster/secret",
        OPEN,
        cluster_routes.rotate_secret,
        "Give a cluster a new secret for the one that it shows, which ends",
        cluster_routes.SecretAnswer,
        query=("name",),
        problems=(401, 404, 422),
    ),
    Route(
        "DELETE",
        "/api/v1/cluster",
        OPEN,
        cluster_routes.delete_cluster,
        "Forget a cluster, by its secret",
        "application/json",
        query=("name",),
        problems=(401, 404, 422),
    ),
    Route(
        "GET", "/metrics", READ, node_routes.show_metrics, "Metrics for Prometheus", "text/plain"
    ),
    Route(
        "GET", "/healthz", OPEN, node_routes.show_health, "The process lives", "application/json"
    ),
    Route(
        "GET",
        "/readyz",
        OPEN,
        node_routes.show_readiness,
        "The scheduler takes work: it is not stopping, and its journal is written",
        "application/json",
        problems=(503,),
    ),
    Route("GET", "/openapi.json", READ, _describe, "This description", "application/json"),
)


Methods = dict[str, Route]

_FIXED: Final[dict[str, Methods]] = {}
"""By path."""
_UNDER: Final[dict[str, dict[str, Methods]]] = {}
"""By what stands before the parameter and, in that, by what follows it."""
_REST: Final = ":path"
for _route in ROUTES:
    _before, _parameter, _after = _route.path.partition("{")
    if _parameter:
        _name, _, _after = _after.partition("}")
        _suffix = _REST if _name.endswith(_REST) else _after
        _methods = _UNDER.setdefault(_before, {}).setdefault(_suffix, {})
    else:
        _methods = _FIXED.setdefault(_before, {})
    _methods[_route.method] = _route


def find(method: str, path: str) -> tuple[Route, str]:
    """The route, and what the path, as it was sent, names. Raises a 404, or a 405 that says
    what is allowed.

    The name is decoded after the path is split: a slash in it, sent as `%2F`, ends nothing."""
    methods, name = _methods_of(path)
    if not methods:
        raise not_found(f"{path}; /openapi.json lists what there is")
    route = methods.get(method)
    if route is None:
        allowed = ", ".join(methods)
        headers = [(b"allow", allowed.encode())]
        raise Problem(405, f"{path} allows {allowed}, not {method}", headers=headers)
    return route, unquote(name)


def find_open(method: str, path: str) -> Route | None:
    """The route, if it needs no token."""
    route = _FIXED.get(path, {}).get(method)
    return route if route is not None and route.right == OPEN else None


def _methods_of(path: str) -> tuple[Methods, str]:
    methods = _FIXED.get(path)
    if methods is not None:
        return methods, ""
    for prefix, by_suffix in _UNDER.items():
        if path.startswith(prefix):
            rest = path[len(prefix) :]
            if _REST in by_suffix:
                return by_suffix[_REST], rest
            name, slash, after = rest.partition("/")
            return by_suffix.get(slash + after, {}) if name else {}, name
    return {}, ""
