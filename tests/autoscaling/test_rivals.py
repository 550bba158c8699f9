"""Pod autoscalers are asked for only where something is to be written, and what is refused is named."""

import pytest

from offline_rl.serving.kube_api import KubeApi, KubeError
from offline_rl.serving.scaling_controller import Controller
from offline_rl.serving.scaling_guard import Guard, GuardConfig
from tests.autoscaling.guarded import NAMES, policy_of


class WithoutAutoscalers(KubeApi):
    """A cluster that knows deployments, and refuses all else."""

    def get(self, path):
        if path.endswith("/deployments"):
            return {"items": [{"metadata": {"name": name}, "spec": {"replicas": 2}} for name in NAMES]}
        raise KubeError(
            "the API refused GET (403)", where=path, allowed="an account that may get deployments"
        )


def controlling(writes):
    guard = Guard(policy_of(0.6)[0], GuardConfig())
    return Controller(guard, None, WithoutAutoscalers("http://nowhere"), "shop", writes, None, lambda: 0.0)


def test_who_recommends_lists_no_pod_autoscalers():
    controlling(()).refuse_rivals()


def test_who_writes_is_told_that_pod_autoscalers_cannot_be_listed():
    with pytest.raises(KubeError, match=r"HorizontalPodAutoscalers cannot be listed: .*403") as found:
        controlling(("cart",)).refuse_rivals()
    assert "may list horizontalpodautoscalers" in found.value.allowed
    assert "autoscaling/v1" in found.value.where  # every version of Kubernetes serves it
