"""What tests ask of a runner: a request, a time, the nodes of a policy."""

from offline_rl.runner import Node, Request

NOW_S = 4 * 86_400.0 + 6 * 3600.0  # a Monday, 06:00


# Made: edge-0 (4 cores, 8 GiB, 1 GPU, site-0), edge-1 (8, 16, site-1), edge-2 (12, 8, site-0), cloud (endless, site-1)
REQUEST = Request(
    cpu_cores=2.0, memory_gib=1.0, site="site-0", service="service-1", requested_run_s=20.0, deadline_s=6.0
)


def nodes_of(policy):
    return [Node(name) for name in policy.contract.choices]
