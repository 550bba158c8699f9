"""An application of microservices as a plain event loop, one request after the other: no array code, no shared law.

A replica shares its cores equally among its calls, each of which uses one core at most. Calls go to a replica chosen at
random. Virtual time of a replica passes at the speed at which one of its calls is worked on.
"""

import heapq
import random
from dataclasses import dataclass, field
from math import floor


@dataclass
class Replica:
    cores: float
    most: int
    virtual_s: float = 0.0
    updated_s: float = 0.0
    version: int = 0
    calls: list = field(default_factory=list)  # heap of (virtual end, number, callback)

    def speed(self):
        return min(len(self.calls), self.cores) / len(self.calls) if self.calls else 0.0

    def advance(self, now_s):
        self.virtual_s += (now_s - self.updated_s) * self.speed()
        self.updated_s = now_s


class Loop:
    """Runs an application with replicas and cores that stay as they are.

    Args:
        application: Services and users.
        replicas, cores: Service -> how many, and cores of each.
        rate: Time -> requests a second; at most `most_per_s`.
        exponential: Else every call of a service has the same work.
    """

    def __init__(self, application, replicas, cores, rate, most_per_s, seed=0, exponential=True):
        self.random, self.exponential = random.Random(seed), exponential
        self.application, self.rate, self.most_per_s = application, rate, most_per_s
        self.services = {service.name: service for service in application.services}
        self.replicas = {
            name: [
                Replica(min(cores[name], service.parallelism), service.connections)
                for _ in range(replicas[name])
            ]
            for name, service in self.services.items()
        }
        self.events, self.number, self.now_s = [], 0, 0.0
        self.requests = []  # (arrival, response, refused)
        self.calls = {name: [] for name in self.services}  # (arrival, sojourn)

    def schedule(self, at_s, action):
        self.number += 1
        heapq.heappush(self.events, (at_s, self.number, action))

    def run(self, until_s):
        self.schedule(self.random.expovariate(self.most_per_s), self.arrive)
        while self.events and self.events[0][0] <= until_s:
            self.now_s, _, action = heapq.heappop(self.events)
            action()
        return self

    def arrive(self):
        self.schedule(self.now_s + self.random.expovariate(self.most_per_s), self.arrive)
        if self.random.random() * self.most_per_s > self.rate(self.now_s):
            return
        users = self.application.users
        user = self.random.choices(users, [one.share for one in users])[0]
        began_s, refused = self.now_s, []
        self.call(
            user.root, refused, lambda: self.requests.append((began_s, self.now_s - began_s, bool(refused)))
        )

    def call(self, call, refused, after):
        """One call: its own work, then the calls that it makes."""
        service, began_s = self.services[call.service], self.now_s
        replica = self.random.choice(self.replicas[call.service])
        if len(replica.calls) >= replica.most:
            refused.append(call.service)
            after()
            return
        work_s = self.random.expovariate(1.0 / service.work_s) if self.exponential else service.work_s

        def worked():
            self.calls[call.service].append((began_s, self.now_s - began_s))
            self.follow(call.then, refused, after)

        replica.advance(self.now_s)
        self.number += 1
        heapq.heappush(replica.calls, (replica.virtual_s + work_s, self.number, worked))
        self.plan(replica)

    def follow(self, calls, refused, after):
        at_once = [call for call in calls if call.parallel]
        in_turn = [call for call in calls if not call.parallel]
        open_ends = [1 + len(at_once)]

        def end():
            open_ends[0] -= 1
            if not open_ends[0]:
                after()

        for call in at_once:
            self.repeat([call], refused, end)
        self.repeat(in_turn, refused, end)

    def repeat(self, calls, refused, after):
        """Calls one after the other, each as often as it says."""
        todo = []
        for call in calls:
            times = floor(call.times) + (self.random.random() < call.times - floor(call.times))
            todo += [call] * times

        def following():
            if todo:
                self.call(todo.pop(0), refused, following)
            else:
                after()

        following()

    def plan(self, replica):
        replica.version += 1
        if replica.calls:
            version = replica.version
            left_s = max(replica.calls[0][0] - replica.virtual_s, 0.0)
            self.schedule(self.now_s + left_s / replica.speed(), lambda: self.finish(replica, version))

    def finish(self, replica, version):
        if version != replica.version:
            return
        replica.advance(self.now_s)
        _, _, worked = heapq.heappop(replica.calls)
        self.plan(replica)
        worked()
