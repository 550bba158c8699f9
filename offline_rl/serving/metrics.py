"""What the server counts, in Prometheus' text format."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class Metrics:
    """The counters of one server; each attribute is one metric, described where it is made."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"schedtwin_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(f"schedtwin_{name}", text, labels, registry=self.registry)

        self.answers = counter("answers", "HTTP answers, by path and status.", ("path", "status"))
        self.decisions = counter(
            "decisions", "Decisions, by who answered: policy, fallback, explore; of a queue policy, rule.", ("arm",)
        )  # fmt: skip
        self.fallbacks = counter(
            "fallbacks",
            "Decisions that were the policy's to take and that the fallback took, by reason.",
            ("reason",),
        )
        self.disagreements = counter(
            "disagreements",
            "Decisions in which policy and fallback named different nodes, or jobs to start, both having decided.",
        )
        self.compared = counter("compared", "Decisions in which policy and fallback both decided.")
        self.nothing_feasible = counter(
            "nothing_feasible", "Questions in which no node could take the request."
        )
        self.out_of_distribution = counter(
            "out_of_distribution",
            "Decisions of the policy with a feature outside the range seen in training.",
        )
        self.alarm = gauge(
            "alarm",
            "Evidence that requests are unlike those of training, or runs slower or faster, over its limit; an alarm "
            "from 1 on.",
            ("kind",),
        )
        self.unknown_labels = counter("unknown_labels", "Labels of requests that training never saw.")
        self.unknown_nodes = counter("unknown_nodes", "Candidate nodes that the policy does not know.")
        self.assumed_finishes = counter(
            "assumed_finishes",
            "Requests of which nobody reported an end, taken to be over after their run time.",
        )
        self.forgotten = counter(
            "forgotten", "Requests in flight, or only their candidates, forgotten as too many.", ("what",)
        )
        self.unknown_events = counter("unknown_events", "Events about requests that are not held.")
        self.refused_events = counter("refused_events", "Events that lie before the decision or the start.")
        self.policy_hangs = counter(
            "policy_hangs", "Threads of the policy that were left behind in a question that never ended."
        )
        self.reloads = counter("reloads", "Reloads of the bundle, by outcome.", ("outcome",))
        self.log_rows_written = counter("log_rows_written", "Rows of the decision log on the disk.")
        self.log_rows_lost = counter("log_rows_lost", "Rows of the decision log that were lost.")
        self.log_errors = counter("log_errors", "Failed writes and closings of the decision log.")
        self.log_files_rewritten = counter(
            "log_files_rewritten",
            "Files of the decision log that were deleted while open, and written again.",
        )
        self.log_rows_pending = gauge("log_rows_pending", "Rows of the decision log that wait to be written.")
        self.log_writable = gauge("log_writable", "1 while the decision log can be written.")
        self.log_writable.set(1)
        self.shed = counter("shed", "Questions turned away unread (503) because the server was behind.")
        self.known_nodes = gauge("known_nodes", "Nodes known from training and from the inventory.")
        self.connections = gauge("connections", "Connections that are open.")
        self.connections_shed = counter(
            "connections_shed", "Idle connections that were closed to make room for others."
        )
        self.connections_refused = counter(
            "connections_refused", "Callers that were hung up on because all others were busy."
        )
        self.in_flight = gauge("in_flight", "Requests that the server takes to be waiting or running.")
        self.bundle = gauge("bundle", "1 for the bundle in use.", ("content_hash",))
        self.decision_s = Histogram(
            "schedtwin_policy_seconds", "Time the policy took.", buckets=SECONDS, registry=self.registry
        )
        self.answer_s = Histogram(
            "schedtwin_answer_seconds", "Time from a question's arrival to its answer.", ("path",),
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
