"""What runs side by side in a job shares one encoding, and another archive or other days get their own."""

from evaluation.comparison.training_days import DaysConfig
from evaluation.problems.placement import encodings
from evaluation.problems.placement.encodings import encoding_of
from logs_schema import Archive
from logs_schema.background import Background
from tests.evaluation.test_no_choice import archive_of
from tests.twin.test_fit_encoding import DAYS
from twin.placement.encoding import fit_encoding


def test_two_threads_fit_one_encoding_together(tmp_path, monkeypatch):
    fitted = []

    def counted(*arguments, **settings):
        fitted.append(arguments)
        return fit_encoding(*arguments, **settings)

    monkeypatch.setattr(encodings, "fit_encoding", counted)
    first, second = archive_of(tmp_path / "a", [["n0", "n1"]]), archive_of(tmp_path / "b", [["n0", "n1"]] * 3)
    days = DaysConfig(granularity="node")
    threads = [Background(lambda: encoding_of(Archive(first.path), DAYS[:1], days)) for _ in range(2)]
    one, other = (thread.result() for thread in threads)
    assert one is other
    assert len(fitted) == 1
    assert one.to_json() == fit_encoding(first, DAYS[:1], granularity="node", view=days.view).to_json()
    assert encoding_of(second, DAYS[:1], days).to_json() != one.to_json()
    by_class = encoding_of(second, DAYS[:1], DaysConfig(granularity="class"))
    assert by_class.cluster.num_nodes == 2
    assert len(fitted) == 3
