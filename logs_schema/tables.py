"""The tables of an archive: what a scheduling log can contain, in the field's words.

`requests` is the heart: one row is one request with the decision taken for it, the client's answer and the
outcome. The other tables describe the system around it. Batch clusters have one site and call a request a
job.
"""

import pyarrow as pa

from logs_schema.columns import INSTANT, LABEL, LABELS, Column, Order, TableSpec

SCHEMA_VERSION = 1

TIERS = ("edge", "cloud", "pool")
STATUSES = ("completed", "failed", "killed", "dropped", "rejected", "running", "waiting", "unknown")
"""`dropped`: given up late by the system; `rejected`: the client refused the offer; `running` and `waiting`:
unfinished when the log ended."""

GATEWAY = "gateway"
"""The `deployment` whose rows in `deployment_samples` are measured where users meet an application: from end to end,
all requests, no replicas."""

UNFINISHED = ("running", "waiting")
"""Statuses of requests whose end is not in the log: a later row about the same request replaces it."""


def _label(name: str, description: str, *, nullable: bool = True, allowed: tuple[str, ...] = ()) -> Column:
    return Column(name, LABEL, description, nullable=nullable, allowed=allowed)


def _amount(
    name: str, unit: str, description: str, *, nullable: bool = True, upper: float | None = None
) -> Column:
    return Column(name, pa.float64(), description, unit=unit, nullable=nullable, lower=0.0, upper=upper)


def _instant(name: str, description: str, *, nullable: bool = True) -> Column:
    return Column(name, INSTANT, description, unit="UTC", nullable=nullable)


def _count(name: str, description: str, *, lower: int = 0, nullable: bool = True) -> Column:
    return Column(name, pa.int32(), description, unit="1", nullable=nullable, lower=lower)


NODES = TableSpec(
    "nodes",
    "Inventory: one row per machine (or virtual machine) with its capacities.",
    (
        _label("node_id", "Name of the node, as decisions refer to it.", nullable=False),
        _label("node_class", "Nodes of one class are interchangeable in capacity and kind."),
        _label("site", "Site (cluster, access point, pool) that the node belongs to.", nullable=False),
        _label("tier", "Where the node stands.", nullable=False, allowed=TIERS),
        _amount("cpu_cores", "cores", "Capacity in cores (processors in SWF logs).", nullable=False),
        _amount("memory_gib", "GiB", "Capacity in memory."),
        _amount("gpus", "1", "Capacity in GPUs."),
        _amount("speed", "1", "Speed relative to a reference node."),
        _label("gpu_model", "Model of the GPUs."),
        Column("virtual", pa.bool_(), "True where the row stands for a pool of unnamed machines."),
    ),
    key=("node_id",),
    time=None,
    sort=("site", "node_id"),
)

REQUESTS = TableSpec(
    "requests",
    "One row per request (job, task, pod): what was asked, decided, answered, and what came of it.",
    (
        Column("request_id", pa.string(), "Identity of the request, unique in the archive.", nullable=False),
        _instant("arrival", "When the request was submitted.", nullable=False),
        _label("site", "Site where the request arrived: the site that decides.", nullable=False),
        _label("scenario", "Scenario (class of use) of the requesting agent."),
        _label("service", "Service, executable, task type or queue asked for."),
        _label("agent", "Who sends the request: a user, or a service group's instance."),
        _label("queue", "Queue or priority class the request was submitted to."),
        _amount("cpu_cores", "cores", "Cores asked for, in total over all nodes."),
        _amount("memory_gib", "GiB", "Memory asked for, in total over all nodes."),
        _amount(
            "memory_share",
            "1",
            "Memory asked for as a share of a reference machine, where a log publishes no bytes.",
        ),
        _amount("gpus", "1", "GPUs asked for, in total; fractions share a GPU."),
        _count("num_nodes", "Number of nodes the request must be spread over.", lower=1),
        _amount("requested_run_s", "s", "Run time asked for (wall-clock limit)."),
        _amount("input_mib", "MiB", "Input to be sent to where the request runs."),
        _amount("output_mib", "MiB", "Output to be sent back."),
        _amount("deadline_s", "s", "Largest useful time from arrival to finish."),
        Column(
            "candidates",
            LABELS,
            "Nodes (or node classes) that were allowed to run the request; null if unknown.",
        ),
        _instant("decided", "When the decision was taken."),
        _label("offered_node", "The decision: node that the request was offered to."),
        _amount(
            "propensity",
            "1",
            "Probability with which the policy of the day chose the offered node.",
            upper=1.0,
        ),
        Column("accepted", pa.bool_(), "The client's answer: did the agent accept the offer?"),
        Column("agent_left", pa.bool_(), "Did the agent leave the system after this request?"),
        _label("session", "Session of the agent that the request belongs to."),
        _instant("start", "When the request began to run."),
        _instant("finish", "When the request ended; without a start, when it was given up."),
        _amount(
            "run_s",
            "s",
            "Run time, where a log lacks its start or finish: that follows from it and the other.",
        ),
        _label("status", "How it ended.", nullable=False, allowed=STATUSES),
        _label("ran_node", "Node it really ran on; the first one where there were several."),
        Column(
            "ran_nodes",
            LABELS,
            "All nodes it ran on, one entry per equal share of the request, where there were several.",
        ),
    ),
    key=("request_id",),
    time="arrival",
    sort=("arrival", "request_id"),
    orders=(
        Order("arrival", "decided"),
        Order("arrival", "start"),
        Order("start", "finish"),
        Order("arrival", "finish"),
    ),
)

NODE_SAMPLES = TableSpec(
    "node_samples",
    "Measurements of nodes over time.",
    (
        _instant("time", "When the sample was taken.", nullable=False),
        _label("node_id", "Node measured.", nullable=False),
        _amount("cpu_cores_used", "cores", "Cores in use."),
        _amount("memory_gib_used", "GiB", "Memory in use."),
        _amount("gpus_used", "1", "GPUs in use."),
        _count("num_waiting", "Requests waiting at the node."),
        _count("num_running", "Requests running on the node."),
        Column("available", pa.bool_(), "Whether the node could take requests."),
    ),
    key=("time", "node_id"),
    time="time",
    sort=("time", "node_id"),
)

REPLICAS = TableSpec(
    "replicas",
    "Replicas of services on nodes: one row per change or sample.",
    (
        _instant("time", "From when the count holds.", nullable=False),
        _label("service", "Service hosted.", nullable=False),
        _label("node_id", "Node hosting it.", nullable=False),
        _count("num_replicas", "Replicas of the service on the node.", nullable=False),
    ),
    key=("time", "service", "node_id"),
    time="time",
    sort=("time", "service", "node_id"),
)

DEPLOYMENT_SAMPLES = TableSpec(
    "deployment_samples",
    "Per deployment and interval: resources, load, response, and the scaling action taken.",
    (
        _instant("time", "Start of the interval.", nullable=False),
        _amount("interval_s", "s", "Length of the interval.", nullable=False),
        _label(
            "deployment",
            "Deployment (microservice); `gateway` where users meet the application.",
            nullable=False,
        ),
        _amount("cpu_cores", "cores", "Cores granted per replica."),
        _amount("memory_gib", "GiB", "Memory granted per replica."),
        _count("num_replicas", "Replicas running."),
        _amount("ready_replicas", "1", "Of them those that took calls, mean over the interval."),
        _amount("cpu_cores_used", "cores", "Cores used per replica."),
        _amount("memory_gib_used", "GiB", "Memory used per replica."),
        _amount("request_rate_per_s", "1/s", "Requests per second."),
        _amount(
            "response_s",
            "s",
            "Mean response time: of a deployment's own work, of the gateway from end to end.",
        ),
        _amount("response_p95_s", "s", "95 % of the requests were answered within this time."),
        _amount("response_p99_s", "s", "99 % of the requests were answered within this time."),
        _count("num_failures", "Failed requests in the interval."),
        Column(
            "action_cpu_cores", pa.float64(), "Scaling action: change of cores per replica.", unit="cores"
        ),
        Column(
            "action_memory_gib", pa.float64(), "Scaling action: change of memory per replica.", unit="GiB"
        ),
        Column("action_replicas", pa.int32(), "Scaling action: change of the number of replicas.", unit="1"),
        Column("action_brownout", pa.bool_(), "Scaling action: optional parts switched off."),
    ),
    key=("time", "deployment"),
    time="time",
    sort=("time", "deployment"),
)

TABLES = (NODES, REQUESTS, NODE_SAMPLES, REPLICAS, DEPLOYMENT_SAMPLES)
