"""Applications as data: a chain, Online Boutique, Train Ticket.

Topologies follow the public sources of the two benchmarks; work, memory and shares are synthetic, as the log notes.
"""

from evaluation.simulator.applications.application import Application, Microservice, ServiceCall, UserType
from evaluation.simulator.presets import PRESETS
from logs_schema.errors import ConfigError


def _call(service: str, *then: ServiceCall, times: float = 1.0, parallel: bool = False) -> ServiceCall:
    return ServiceCall(service, then, times, parallel)


_CHAIN_DEEP = _call("cache", _call("storage", times=0.4))
CHAIN = Application(
    name="chain",
    services=(
        Microservice("edge", 0.003, parallelism=4),
        Microservice("web", 0.006),
        Microservice("logic", 0.012, start_up_s=40.0),
        Microservice("cache", 0.002, parallelism=4, memory_gib=0.4),
        Microservice("storage", 0.008, memory_gib=0.3),
    ),
    users=(
        UserType("readers", 0.8, _call("edge", _call("web", _CHAIN_DEEP)), drift=-0.1),
        UserType(
            "writers",
            0.2,
            _call("edge", _call("web", _call("logic", _CHAIN_DEEP, _call("storage")))),
            drift=0.4,
        ),
    ),
    rate_per_s=120.0,
    slo_s=0.2,
)

_PRICED = _call("currency", times=2.0)
_PRODUCT_PAGE = _call(
    "frontend",
    _call("catalog"),
    _PRICED,
    _call("cart", _call("redis")),
    _call("recommendation", _call("catalog")),
    _call("ad", parallel=True),
)
BOUTIQUE = Application(
    name="boutique",
    services=(
        Microservice("frontend", 0.005, parallelism=4, start_up_s=15.0),
        Microservice("catalog", 0.002),
        Microservice("currency", 0.0015),
        Microservice("cart", 0.003),
        Microservice("redis", 0.0008, memory_gib=0.25),
        Microservice("recommendation", 0.006, start_up_s=35.0, optional=True),
        Microservice("ad", 0.004, start_up_s=45.0, optional=True),
        Microservice("checkout", 0.008),
        Microservice("payment", 0.005),
        Microservice("shipping", 0.003),
        Microservice("email", 0.007),
    ),
    users=(
        UserType("index", 0.25, _call("frontend", _call("catalog"), _PRICED, _call("ad", parallel=True))),
        UserType("browse", 0.5, _PRODUCT_PAGE, drift=-0.15),
        UserType(
            "cart", 0.17,
            _call("frontend", _call("cart", _call("redis")), _call("catalog", times=3.0), _call("shipping"), _PRICED,
                  _call("recommendation", _call("catalog"))),
        ),
        UserType(
            "checkout", 0.08,
            _call("frontend", _call(
                "checkout", _call("cart", _call("redis")), _call("catalog", times=2.0), _call("currency", times=3.0),
                _call("shipping", times=2.0), _call("payment"), _call("email"),
            ), _call("recommendation", _call("catalog"))),
            drift=0.5,
        ),
    ),
    rate_per_s=150.0,
    slo_s=0.2,
)  # fmt: skip

_ROUTE_OF = _call("route")
_TRAIN_OF = _call("train")
_BASIC = _call("basic", _call("station", times=2.0), _TRAIN_OF, _ROUTE_OF, _call("price"))
_TICKET_INFO = _call("ticketinfo", _BASIC)
_SEAT = _call("seat", _call("travel", _ROUTE_OF, _TRAIN_OF), _call("order"), _call("config"))
_SEARCH = _call("travel", _TICKET_INFO, _SEAT, _ROUTE_OF, _TRAIN_OF)
_SEARCH_2 = _call("travel2", _TICKET_INFO, _call("seat", _call("order-other"), _call("config")), _ROUTE_OF)
_PLAN = _call("travel-plan", _call("route-plan", _SEARCH, _SEARCH_2, _ROUTE_OF), times=0.3)
_LOGIN = _call("auth", _call("verification-code", times=0.5), times=0.3)
_PRESERVED = (
    _call("contacts"),
    _call("security", _call("order"), _call("order-other")),
    _call("assurance", times=0.4),
    _call("food", _call("food-map"), _call("station"), times=0.4),
    _call("consign", _call("consign-price"), times=0.2),
    _call("user"),
    _call("notification"),
)
_PAY = _call("inside-payment", _call("payment"), _call("order"))
_ADMIN = (
    _call("admin-basic-info", _call("station"), _call("contacts"), _call("price"), times=0.3),
    _call("admin-order", _call("order"), _call("order-other"), times=0.3),
    _call("admin-route", _ROUTE_OF, times=0.15),
    _call("admin-travel", _call("travel"), times=0.15),
    _call("admin-user", _call("user"), times=0.1),
)
_SLOW_START = {"travel", "travel2", "order", "preserve", "basic", "seat"}
_OPTIONAL = {"news", "voucher", "food", "food-map", "notification"}
_WORK_MS = {
    "ui": 2, "auth": 5, "user": 3, "verification-code": 4, "station": 1.5, "train": 1.5, "config": 1.5, "basic": 4,
    "ticketinfo": 3, "price": 2, "route": 1.5, "travel": 6, "travel2": 6, "travel-plan": 5, "route-plan": 5, "seat": 4,
    "order": 3, "order-other": 3, "preserve": 9, "preserve-other": 9, "contacts": 3, "assurance": 3, "food": 4,
    "food-map": 3, "consign": 4, "consign-price": 2, "security": 4, "notification": 5, "inside-payment": 6,
    "payment": 5, "cancel": 7, "rebook": 8, "execute": 5, "admin-basic-info": 4, "admin-order": 4, "admin-route": 4,
    "admin-travel": 4, "admin-user": 4, "news": 2, "voucher": 4,
}  # fmt: skip
TRAINTICKET = Application(
    name="trainticket",
    services=tuple(
        Microservice(
            name, work_ms / 1000.0, memory_gib=0.35, start_up_s=50.0 if name in _SLOW_START else 30.0,
            optional=name in _OPTIONAL,
        )
        for name, work_ms in _WORK_MS.items()
    ),
    users=(
        UserType("query", 0.7, _call("ui", _LOGIN, _SEARCH, _PLAN, _call("news", times=0.3)), drift=-0.2),
        UserType(
            "buy", 0.2,
            _call("ui", _LOGIN, _call("preserve", _TICKET_INFO, _SEAT, *_PRESERVED, times=0.7),
                  _call("preserve-other", _TICKET_INFO, *_PRESERVED, times=0.3), _PAY, _call("voucher", times=0.2),
                  _call("execute", _call("order"), times=0.4)),
            drift=0.4,
        ),
        UserType(
            "cancel", 0.07,
            _call("ui", _LOGIN, _call("cancel", _call("order"), _PAY, _call("user"), _call("notification"), times=0.7),
                  _call("rebook", _SEARCH, _SEAT, _PAY, times=0.3)),
        ),
        UserType("admin", 0.03, _call("ui", _LOGIN, *_ADMIN)),
    ),
    rate_per_s=80.0,
    slo_s=0.6,
    cluster_cores=400.0,
)  # fmt: skip

APPLICATIONS = (CHAIN, BOUTIQUE, TRAINTICKET)


def is_application(name: str, where: str) -> bool:
    """Whether a preset is an application, and no cluster; ConfigError where it is neither."""
    clusters, applications = ([one.name for one in those] for those in (PRESETS, APPLICATIONS))
    if name not in (*clusters, *applications):
        raise ConfigError(
            f"there is no preset {name!r}",
            where=where,
            allowed=f"of clusters: {', '.join(clusters)}; of applications: {', '.join(applications)}",
            advice="choose one of these, or declare a cluster of your own (--world; in a configuration [log] world)",
        )
    return name in applications


def application(name: str) -> Application:
    """The application of a preset; ConfigError where there is none."""
    for one in APPLICATIONS:
        if one.name == name:
            return one
    raise ConfigError(
        f"there is no application '{name}'",
        where="preset",
        allowed=", ".join(one.name for one in APPLICATIONS),
    )
