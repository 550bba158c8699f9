"""The type of applications of microservices: services, and users whose requests call them.

A request enters at the root of its user's call graph. A service does its own work, then makes its calls: one after
the other, and those with `parallel` beside them. `times`: number of times that a call is made; 2.0 twice, 0.3 in three
of ten cases. Everything is data; the simulation is in `stations`, `graph` and `fluid`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from logs_schema.errors import ConfigError, first


@dataclass(frozen=True)
class Microservice:
    """One service, run by a deployment of its name.

    Attributes:
        name: Of it.
        work_s: Processor seconds of a call, mean; exponentially distributed.
        parallelism: Most cores that one replica can use.
        memory_gib: Of a replica without calls.
        memory_per_call_gib: Of every call in a replica.
        start_up_s: From the order to a replica that takes calls.
        connections: Calls in a replica at once; more are refused.
        optional: Whether users can do without it (brownout).
    """

    name: str
    work_s: float
    parallelism: int = 2
    memory_gib: float = 0.12
    memory_per_call_gib: float = 0.002
    start_up_s: float = 25.0
    connections: int = 60
    optional: bool = False


@dataclass(frozen=True)
class ServiceCall:
    """A call of a service, and the calls that it makes then."""

    service: str
    then: tuple["ServiceCall", ...] = ()
    times: float = 1.0
    parallel: bool = False


@dataclass(frozen=True)
class UserType:
    """Users with the same requests.

    Attributes:
        name: Of them.
        share: Of the requests on day 0.
        root: The call graph of a request.
        drift: Change of the logarithm of the share in 30 days, before shares are made to sum to 1.
    """

    name: str
    share: float
    root: ServiceCall
    drift: float = 0.0


@dataclass(frozen=True)
class Application:
    """An application and the cluster under it.

    Attributes:
        name: Of the preset.
        services: In the order of the deployments.
        users: The clients.
        rate_per_s: Mean rate of requests on day 0.
        growth: Change of the logarithm of the rate in 30 days.
        cluster_cores: Cores that all replicas share; replicas beyond them stay pending.
        timeout_s: After which a user gives up.
        slo_s: Objective: response time of 95 % of the requests at most.
        max_replicas: Of every deployment.
        noise: Deviation of the logarithm of a service's speed from interval to interval (noisy neighbours).
    """

    name: str
    services: tuple[Microservice, ...]
    users: tuple[UserType, ...]
    rate_per_s: float
    growth: float = 0.1
    cluster_cores: float = 200.0
    timeout_s: float = 5.0
    slo_s: float = 0.25
    max_replicas: int = 20
    noise: float = 0.03

    def __post_init__(self) -> None:
        names = [service.name for service in self.services]
        called = {call.service for user in self.users for call in calls_of(user.root)}
        if len(set(names)) < len(names) or called != set(names):
            odd = sorted(called ^ set(names)) or sorted({name for name in names if names.count(name) > 1})
            raise ConfigError(
                f"services and calls of application '{self.name}' do not fit together",
                where=first(odd),
                allowed="every service declared once, and called by some user",
                advice="mend the preset",
            )

    @property
    def deployments(self) -> tuple[str, ...]:
        """Names of the deployments, in order."""
        return tuple(service.name for service in self.services)


def calls_of(root: ServiceCall) -> Iterator[ServiceCall]:
    """A call and all that follow from it, parents first."""
    yield root
    for call in root.then:
        yield from calls_of(call)
