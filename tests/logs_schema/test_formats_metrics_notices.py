"""What is likely a mistake in a mapping of metrics is said at the import, not by the fit."""

import json

import pytest

from logs_schema.broken_rules import rule_in_words
from logs_schema.errors import FormatError
from logs_schema.formats.instant_units import unit_notice
from logs_schema.importing import import_log
from tests.logs_schema.test_formats_metrics import (
    BEGIN_S,
    CSV,
    CSV_MAPPING,
    MAPPING,
    STEP_S,
    answer,
    imported,
    series,
    write,
)

FRONT = MAPPING.replace("deployment_label", 'gateway = "web"\ndeployment_label')


@pytest.mark.parametrize(
    ("mapping", "words", "there"),
    [
        (FRONT.replace('"web"', '"wbe"'), "no deployment 'wbe'", "cart, web"),
        (
            MAPPING.replace('source = "cpu"', 'source = "cpu"\nonly = "wbe"'),
            "no number of the deployment 'wbe'",
            "web",
        ),
    ],
)
def test_a_deployment_that_a_mapping_names_and_no_series_has_is_an_error_with_those_there_are(
    tmp_path, mapping, words, there
):
    with pytest.raises(FormatError, match=words) as caught:
        imported(tmp_path, write(tmp_path / "metrics", mapping=mapping))
    assert caught.value.allowed == there
    assert not (tmp_path / "archive").exists()


def test_a_gateway_that_the_log_has_is_filed_as_such_and_nothing_is_noticed(tmp_path):
    answers = {"latency": answer(series([20, 40, 80], "web"))}
    mapping = FRONT.replace("of_gateway = true", "").replace("response_s.gateway", "response_s")
    report, rows = imported(tmp_path, write(tmp_path / "metrics", mapping=mapping, **answers))
    assert report.notices == ()
    assert rows[BEGIN_S, "gateway"]["response_s"] == pytest.approx(0.02)


def test_an_empty_answer_is_named_and_of_empty_answers_alone_no_archive_is_made(tmp_path):
    report, _ = imported(tmp_path, write(tmp_path / "one", errors=answer()))
    (notice,) = report.notices
    assert "errors.json holds no series" in notice
    nothing = dict.fromkeys(("cpu", "memory", "errors", "latency"), answer())
    with pytest.raises(FormatError, match="no answer holds a series"):
        import_log("prometheus", [write(tmp_path / "all", **nothing)], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_mapping_without_a_gateway_is_told_at_the_import(tmp_path):
    mapping = MAPPING.replace("of_gateway = true", 'only = "web"').replace("response_s.gateway", "response_s")
    answers = {"latency": answer(series([20, 40, 80], "web"))}
    report, _ = imported(tmp_path, write(tmp_path / "metrics", mapping=mapping, **answers))
    (notice,) = report.notices
    assert "names no gateway" in notice


def test_an_instant_whose_digits_an_underscore_joins_is_no_number_to_give_notice_of():
    assert unit_notice(f"{BEGIN_S}000", "s", "log.csv, t", "time_unit")
    assert not unit_notice(f"{BEGIN_S}_000", "s", "log.csv, t", "time_unit")


@pytest.mark.parametrize(
    ("unit", "num_rows"), [("", 0), ('time_unit = "ms"\n', 3), ('time_unit = "min"\n', None)]
)
def test_milliseconds_in_lines_are_noticed_and_read_where_the_mapping_says_so(tmp_path, unit, num_rows):
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "mapping.toml").write_text(
        f'time_column = "t"\n{unit}deployment = "web"\n[metrics."response_s.gateway"]\nof_gateway = true\n'
        'source = "r"\n'
    )
    lines = [f"{1000 * (BEGIN_S + STEP_S * index)},0.5" for index in range(3)]
    (folder / "log.csv").write_text("\n".join(["t,r", *lines]))
    if num_rows is None:
        with pytest.raises(FormatError, match="time_unit is 'min'"):
            imported(tmp_path, folder, "metrics_csv")
        return
    report, rows = imported(tmp_path, folder, "metrics_csv")
    assert report.rows.get("deployment_samples", 0) == num_rows
    assert ['time_unit = "ms"' in notice for notice in report.notices] == ([] if num_rows else [True])
    assert not num_rows or rows[BEGIN_S, "gateway"]["response_s"] == 0.5


LINES = """
deployment = "web"
time_column = "at"
consecutive = true
[metrics.num_replicas]
source = "n"
of_gateway = true
"""


def lines_at(tmp_path, instants, mapping):
    folder = write(tmp_path / "metrics", mapping=mapping)
    (folder / "log.csv").write_text("\n".join(["at,n", *(f"{at},1" for at in instants)]) + "\n")
    return imported(tmp_path, folder, "metrics_csv")


def test_intervals_that_are_no_part_of_a_day_are_refused_at_the_import(tmp_path):
    with pytest.raises(FormatError, match=r"not a whole number of intervals of 49 s(.|\n)*such as 48"):
        lines_at(tmp_path, range(BEGIN_S, BEGIN_S + 490, 49), LINES)
    answers = dict.fromkeys(("cpu", "memory", "errors", "latency"), answer(series([1, 2, 3], "web")))
    uneven = write(tmp_path / "answers", mapping=f"interval_s = 7\n{MAPPING}", **answers)
    with pytest.raises(
        FormatError, match=r"intervals of 7 s(.|\n)*query the range again with such a step, as 6s"
    ):
        imported(tmp_path, uneven)
    assert not (tmp_path / "archive").exists()


@pytest.mark.parametrize(("interval_s", "num_notices", "num_gaps"), [(50, 1, 20), (60, 0, 0)])
def test_intervals_that_take_far_more_time_than_the_log_did_are_told(
    tmp_path, interval_s, num_notices, num_gaps
):
    """Lines 45 and 80 s apart by turns, 62.5 s in the mean: none is missing."""
    instants = [BEGIN_S + 125 * (index // 2) + 45 * (index % 2) for index in range(41)]
    report, rows = lines_at(tmp_path, instants, f"interval_s = {interval_s}\n{LINES}")
    assert len(report.notices) == num_notices
    assert all("120% of that time" in notice for notice in report.notices)
    at = sorted(time for time, _ in rows)
    assert round((at[-1] - at[0]) / interval_s) == 40 + num_gaps


def test_a_column_that_a_file_has_twice_is_refused(tmp_path):
    """As where tables with an instant each were joined side by side: the rows of one need not be those of the other."""
    folder = write(tmp_path / "metrics", mapping=CSV_MAPPING)
    (folder / "log.csv").write_text(CSV.replace("replicas\n", "when\n"))
    with pytest.raises(FormatError, match="no column when, replicas, or has it twice"):
        imported(tmp_path, folder, "metrics_csv")


def test_answers_that_prometheus_warns_of_are_named(tmp_path):
    whole = answer(series([250, 500, 125], "web"))
    cut = f'{whole[:-1]}, "warnings" : ["no store answered", "1 of 2"], "infos": []}}'
    report, rows = imported(tmp_path, write(tmp_path / "metrics", cpu=cut))
    assert "cpu.json may be part of an answer; Prometheus warned: no store answered, 1 of 2" in report.notices
    assert rows[BEGIN_S, "web"]["cpu_cores_used"] == 0.25


def test_a_counter_is_not_reset_by_what_is_no_number(tmp_path):
    errors = answer(series([10, "+Inf", 14, "NaN", 15, 17], "web"))
    _, rows = imported(tmp_path, write(tmp_path / "metrics", errors=errors))
    failures = [rows.get((BEGIN_S + STEP_S * index, "web"), {}).get("num_failures") for index in range(5)]
    assert failures == [2, None, 0, None, 2]  # per interval, over the gaps


def test_counts_and_numbers_beyond_measure_and_names_beyond_utf8_stop_no_import(tmp_path):
    odd = series([1, 2], "web")
    odd["values"].append([BEGIN_S + 2 * STEP_S, 10**400])
    errors = answer(series([0, 1e12, 1e12], "web"))
    memory = answer(series([2**30], "w\ud800b"))
    folder = write(tmp_path / "metrics", cpu=answer(odd), errors=errors, memory=memory)
    report, rows = imported(tmp_path, folder)
    quarantined = {"not_a_number": 1, "out_of_range:num_failures": 1}
    assert report.quarantined["deployment_samples"] == quarantined
    assert rows[BEGIN_S + STEP_S, "web"]["num_failures"] == 0
    assert rows[BEGIN_S, r"w\ud800b"]["memory_gib_used"] == 1.0


def test_an_answer_nested_beyond_reason_is_none(tmp_path):
    cpu = '{"status":"success","data":{"resultType":"matrix","result":' + "[" * 100_000
    with pytest.raises(FormatError, match="no answer to a range query"):
        imported(tmp_path, write(tmp_path / "metrics", cpu=cpu))


def test_a_number_beyond_measure_in_json_lines_is_rejected(tmp_path):
    folder = write(tmp_path / "metrics", mapping=LINES)
    lines = [{"at": BEGIN_S + 60 * place, "n": number} for place, number in enumerate((1, 10**400, 2))]
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    report, rows = imported(tmp_path, folder, "metrics_csv")
    assert report.quarantined["deployment_samples"] == {"not_a_number": 1}
    assert [row["num_replicas"] for row in rows.values()] == [1, 2]


def test_what_comes_after_a_pod_has_left_a_sum_of_counters_is_not_known(tmp_path):
    """A reset begins at zero; a sum of counters falls to what the others have counted so far."""
    errors = answer(series([9000, 9010, 9020, 9030, 6020, 6026, 6, 12], "web"))
    report, rows = imported(tmp_path, write(tmp_path / "metrics", errors=errors))
    failures = [rows.get((BEGIN_S + STEP_S * index, "web"), {}).get("num_failures") for index in range(7)]
    assert failures == [10, 10, 10, None, 6, 6, 6]  # the last fall is a reset
    assert report.quarantined["deployment_samples"] == {"counter_of_several_fell": 1}
    assert "sum of rates" in rule_in_words("deployment_samples", "counter_of_several_fell")


def test_milliseconds_in_an_answer_are_told_as_such(tmp_path):
    late = series([250, 500], "web")
    late["values"] = [late["values"][0], [late["values"][1][0] * 1000, "500"]]
    report, _ = imported(tmp_path, write(tmp_path / "metrics", cpu=answer(late)))
    assert report.quarantined["deployment_samples"] == {"out_of_range:time": 1}
    assert "milliseconds" in rule_in_words("deployment_samples", "out_of_range:time")


def test_infinity_is_no_number_and_is_told(tmp_path):
    folder = write(
        tmp_path / "metrics", cpu=answer(series([250, "+Inf", "-Inf", "1e400", "NaN", 125], "web"))
    )
    report, rows = imported(tmp_path, folder)
    assert report.quarantined["deployment_samples"] == {"not_finite": 3}
    used = [row["cpu_cores_used"] for (_, name), row in sorted(rows.items()) if name == "web"]
    assert [one for one in used if one is not None] == [0.25, 0.125]
