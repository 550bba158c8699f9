"""The main job, tiny: from a log that the project writes itself to a report and a bundle that decides as the policy."""

import datetime as dt
import json
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from evaluation.commands.bundle_text import bundle_facts
from evaluation.comparison.products import load_comparison, refuse_other_twin
from evaluation.judges.bundle_policies import load_bundle_policy
from evaluation.judges.descriptions import TWIN_POLICY
from evaluation.problems.configuration import LogConfig
from evaluation.problems.placement.case import candidates_from
from evaluation.problems.placement.exporting import build_bundle
from evaluation.problems.placement.kit import trained as trained_in_words
from evaluation.problems.placement.reporting import learning_charts, seeds_as_made, settings_as_made
from evaluation.problems.placement.spreading import spread_in_words
from evaluation.problems.placement.steps import refuse_other_nodes
from logs_schema import Archive, ArchiveWriter
from logs_schema.errors import ConfigError, ProductError
from logs_schema.product import read_manifest, writing
from offline_rl.bundle import TOLERANCE, read_golden, read_network
from offline_rl.contract import LEAST_EXPECTED_RESPONSE, NetworkFacts
from offline_rl.export import named_arrays, split_flat
from offline_rl.networks import example_in
from offline_rl.recipes.schedulers import (
    load_observed,
    load_schedulers,
    network_for,
    policy_params,
    row_of_seed,
    save_schedulers,
    stacked,
)
from offline_rl.rules.in_twin import DESCRIPTIONS, TUNED
from offline_rl.rules.size_intervals import SIZE_INTERVALS
from offline_rl.runner import load_network
from tests.evaluation.tiny_job import KNOWING, RULES, TINY, do
from twin.networks import flatten_features
from twin.placement.encoding import fit_encoding
from twin.placement.history import replay_log
from twin.placement.learned import AnswerConfig
from twin.placement.log_windows import training_windows
from twin.placement.model import PlacementTwin, load_encoding

FROM_LOG = DESCRIPTIONS.keys() - {TUNED[LEAST_EXPECTED_RESPONSE]}
"""Rules of a log with deadlines."""


@pytest.mark.slow
def test_every_policy_is_judged_on_every_shift_that_the_log_has(products: dict[str, Path]) -> None:
    comparison = load_comparison(products["comparison"])
    names = {policy.name for policy in comparison.policies}
    baselines = {baseline.name for baseline in (*RULES, *KNOWING)}
    assert names == baselines | {"history", "bc", "bc_greedy", "twin", "ladder", *FROM_LOG, SIZE_INTERVALS}
    knowing = KNOWING[0].name
    assert comparison.cell("replay", 0, knowing, "on_time") is None
    assert comparison.cell("truth", 30, knowing, "on_time") is not None
    for judge in ("replay", "training twin"):
        for shift, says in ((0, True), (30, False)):
            found = comparison.cell(judge, shift, "twin", "on_time")
            assert (found is not None and found.value is not None) == says, (judge, shift)
    for shift in (0, 30):
        truth = comparison.cell("truth", shift, "history", "on_time")
        assert truth is not None
        assert truth.value is not None
        assert truth.low is not None
        assert truth.low <= truth.value <= truth.high
    assert not comparison.off_policy
    page = products["report"].read_text()
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


@pytest.mark.slow
def test_the_summary_names_a_certificate_that_was_not_passed(products: dict[str, Path]) -> None:
    report = json.loads((products["comparison"] / "report.json").read_text())
    manifest = read_manifest(products["policy"])
    assert manifest.extra["certificate"] is None
    certified, beside = report["warnings"]
    assert certified == (
        f"The policies were {manifest.extra['certification']}. A bundle of them is for shadow mode at most."
    )
    assert "IS NO BETTER in the twin than the logged decisions were in the log" in beside  # hardly trained
    page = products["report"].read_text()
    assert report["warnings"][0] in page[: page.index("<svg")]


@pytest.mark.slow
def test_the_log_is_worth_what_its_rows_say(products: dict[str, Path]) -> None:
    archive = Archive(products["archive"] / "archive")
    comparison = load_comparison(products["comparison"])
    days = [
        dt.date.fromisoformat(day)
        for shift in comparison.shifts
        if shift.shift_days == 0
        for day in shift.days
    ]
    rows = archive.read("requests", days=days)
    took = pc.subtract(pc.cast(rows["finish"], pa.int64()), pc.cast(rows["arrival"], pa.int64()))
    within = pc.less_equal(pc.divide(pc.cast(took, pa.float64()), 1e6), rows["deadline_s"])
    on_time = pc.fill_null(pc.and_(within, rows["accepted"]), False)
    logged = comparison.cell("replay", 0, "history", "on_time")
    offers = comparison.cell("replay", 0, "history", "accepted_ratio")
    assert logged is not None
    assert offers is not None
    assert logged.value == pytest.approx(pc.mean(pc.cast(on_time, pa.float64())).as_py(), abs=0.002)
    assert offers.value == pytest.approx(pc.mean(pc.cast(rows["accepted"], pa.float64())).as_py(), abs=1e-9)


@pytest.mark.slow
def test_a_second_run_makes_nothing_again(products: dict[str, Path]) -> None:
    before = {name: read_manifest(path).created for name, path in products.items() if path.is_dir()}
    again = do(products["archive"].parents[1])
    assert {name: read_manifest(path).created for name, path in again.items() if path.is_dir()} == before


@pytest.mark.slow
def test_a_twin_of_another_version_is_refused(products: dict[str, Path], tmp_path: Path) -> None:
    twin = shutil.copytree(products["twin"], tmp_path / "twin")
    with np.load(twin / "answers.npz") as file:
        arrays = {
            name: leaf[:, :-1] if "Dense_0" in name and leaf.ndim == 3 else leaf
            for name, leaf in file.items()
        }
    np.savez(twin / "answers.npz", **arrays)
    with pytest.raises(ProductError, match="of another version"):
        PlacementTwin.load(twin)


@pytest.mark.slow
def test_the_bundle_decides_as_the_policy(products: dict[str, Path], tmp_path: Path) -> None:
    build_bundle(tmp_path / "bundle", products["policy"], policy=TWIN_POLICY)
    twin = PlacementTwin.load(products["twin"])
    schedulers, _ = load_schedulers(products["policy"])
    seeds = read_manifest(products["policy"]).extra["seeds"]
    chosen = seeds.index(read_manifest(tmp_path / "bundle").seed)
    history = replay_log(twin.disjoint_windows(), twin.encoding)  # by the program of the fit
    network = network_for(schedulers, example_in(history))
    params = jax.tree.map(lambda leaf: leaf[chosen], schedulers.trained)
    logits = jax.vmap(lambda seen, legal: network.logits(params, seen, legal))(
        history.observation, history.legal
    )
    features = jax.vmap(lambda seen: flatten_features(seen, 2))(history.observation)
    flat, legal, scores = (
        np.moveaxis(np.asarray(leaf), 1, -1).reshape(-1, leaf.shape[1])
        for leaf in (features, history.legal, logits)
    )
    best = np.sort(scores, axis=1)[:, -2:]
    clear = best[:, 1] - best[:, 0] > 2 * TOLERANCE  # which of two equals is taken is a matter of rounding
    assert clear.mean() > 0.9
    for backend in ("numpy", "onnx"):
        policy = load_network(tmp_path / "bundle", backend=backend)  # type: ignore[arg-type]
        choices, context = split_flat(flat, policy.contract)
        decided = policy.decide(choices, context, legal)
        assert np.array_equal(decided[clear], np.argmax(scores, axis=1)[clear])


@pytest.mark.slow
def test_what_the_ladder_chose_is_exported_and_judged_under_its_name(products: dict[str, Path]) -> None:
    """Every policy that decides by itself stands on the ladder, whose first rung is the rule from the log."""
    schedulers, _ = load_schedulers(products["policy"])
    name, row = schedulers.chosen
    rungs = read_manifest(products["policy"]).extra["rungs"]
    assert rungs[0]["policy"] == "expected_on_time"
    assert {one["policy"] for one in rungs} == {"bc_greedy", "twin", *FROM_LOG}
    assert [one["policy"] for one in rungs if one["chosen"]] == [name]
    bundle = read_manifest(products["bundle"] / "bundle")
    assert bundle.extra["policy"] == name
    assert bundle.extra["ladder"] == read_manifest(products["policy"]).extra["ladder"]
    arrays = named_arrays(policy_params(schedulers, name, row))
    exported = read_network(
        products["bundle"] / "bundle", load_network(products["bundle"] / "bundle").contract
    )
    assert all(np.array_equal(exported[one], array) for one, array in arrays.items())
    comparison = load_comparison(products["comparison"])
    shown = [comparison.cell("truth", 0, one, "on_time") for one in ("ladder", name)]
    assert shown[0] == shown[1]


@pytest.mark.slow
def test_a_rule_is_exported_by_its_name(products: dict[str, Path], tmp_path: Path) -> None:
    """With the numbers that training gave it; a name that nothing has is refused with those there are."""
    out, tuned = tmp_path / "bundle", "expected_on_time_tuned"
    assert build_bundle(out, products["policy"], policy=tuned) == {"seed": 3, "policy": tuned}
    assert load_network(out).contract.network == NetworkFacts("expected_on_time", ())
    numbers = load_schedulers(products["policy"])[0].rules[tuned]["params"]["expected_on_time"]
    assert bundle_facts(out)["numbers"]["price"] == pytest.approx(float(numbers["price"]))
    with pytest.raises(ConfigError, match="bc_greedy, expected_on_time"):
        build_bundle(tmp_path / "none", products["policy"], policy="nonsense")


@pytest.mark.slow
def test_training_sees_no_later_row_and_no_later_outcome(products: dict[str, Path], tmp_path: Path) -> None:
    archive = Archive(products["archive"] / "archive")
    first_day = archive.days("requests")[0]
    rows = archive.read("requests")
    type_ = rows["arrival"].type
    cutoff = pa.scalar(dt.datetime.combine(first_day + dt.timedelta(days=1), dt.time(), dt.UTC), type_)
    is_first = pc.less(rows["arrival"], cutoff)
    runs_on = pc.and_(pc.greater(pc.hour(rows["arrival"]), 20), pc.is_valid(rows["finish"]))
    runs_on = pc.and_(is_first, runs_on)
    assert pc.sum(runs_on).as_py() > 50
    seen = []
    for hours, keep in ((1, pc.or_(is_first, pc.invert(is_first))), (8, is_first)):
        late = pa.scalar(cutoff.as_py() + dt.timedelta(hours=hours), type_)
        finish = pc.if_else(runs_on, late, rows["finish"])
        altered = rows.set_column(rows.column_names.index("finish"), rows.schema.field("finish"), finish)
        folder = tmp_path / f"{hours}"
        with ArchiveWriter(folder, source={}, facts={}) as writer:
            writer.write("nodes", archive.nodes(), source="nodes", first_row=0, raw=None)
            writer.write("requests", altered.filter(keep), source="requests", first_row=0, raw=None)
        each = Archive(folder)
        encoding = fit_encoding(each, [first_day])
        seen.append((encoding.to_json(), *training_windows(each, encoding, [first_day], num_steps=64)))
    assert seen[0][0] == seen[1][0]
    jax.tree.map(np.testing.assert_array_equal, seen[0][1], seen[1][1])
    assert np.sum(~np.isfinite(seen[0][1].fate.finish_s[seen[0][1].valid()])) > 50


@pytest.mark.slow
def test_what_is_saved_is_what_is_loaded(products: dict[str, Path], tmp_path: Path) -> None:
    twin = PlacementTwin.load(products["twin"])
    schedulers, _ = load_schedulers(products["policy"])
    schedulers = schedulers._replace(from_logs={"cql": schedulers.trained})
    save_schedulers(schedulers, twin, tmp_path)
    loaded, encoding = load_schedulers(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, schedulers, loaded)
    assert encoding.to_json() == twin.encoding.to_json()


@pytest.mark.slow
def test_the_fit_tells_by_how_much_it_widened_durations(products: dict[str, Path]) -> None:
    told = read_manifest(products["twin"]).extra["spread"]
    factors = PlacementTwin.load(products["twin"]).report.spread
    assert [told["waits"], told["run_times"]] == pytest.approx(factors.tolist())
    words = f"{told['waits']:.2f} for waits, {told['run_times']:.2f} for run times"
    assert words in spread_in_words(told)


@pytest.mark.slow
def test_disjoint_windows_share_no_request(products: dict[str, Path]) -> None:
    twin = PlacementTwin.load(products["twin"])
    disjoint = twin.disjoint_windows()
    rows = disjoint.row[disjoint.valid()]
    assert len(np.unique(rows)) == len(rows)
    assert len(rows) >= twin.windows.row.max() - TINY.days.num_steps


@pytest.mark.slow
def test_every_seed_is_judged(products: dict[str, Path]) -> None:
    schedulers, _ = load_schedulers(products["policy"])
    both = schedulers._replace(
        trained=jax.tree.map(lambda leaf: np.concatenate([leaf, leaf + 1.0]), schedulers.trained),
        reward_curve=np.repeat(schedulers.reward_curve, 2, axis=0),
    )
    tried = candidates_from(both, PlacementTwin.load(products["twin"]).encoding.cluster, RULES)
    first, second = (one.params for one in tried if one.name == TWIN_POLICY)
    jax.tree.map(lambda one, other: np.testing.assert_array_equal(one + 1.0, other), first, second)


@pytest.mark.slow
def test_a_report_names_settings_and_seeds_of_the_products_whatever_the_comparison_was_given(
    products: dict[str, Path],
) -> None:
    made = {name: read_manifest(products[name]) for name in ("twin", "policy")}
    made["policy"] = replace(made["policy"], seed=5, extra={**made["policy"].extra, "seeds": [7]})
    other = replace(
        TINY, seed=9, judge=replace(TINY.judge, seed=4), train=replace(TINY.train, num_updates=99)
    )
    other = replace(other, twin=replace(TINY.twin, num_steps=1), shifts=replace(TINY.shifts, shifts="3d"))
    assert seeds_as_made(other, made) == {"twin": TINY.seed, "policies": 5, "judges": 4}
    assert seeds_as_made(other, {"twin": made["twin"]}) == {"twin": TINY.seed, "judges": 4}
    shown = settings_as_made(other, made)
    assert shown["train"]["num_updates"] == TINY.train.num_updates
    assert shown["twin"]["num_steps"] == TINY.twin.num_steps
    assert shown["shifts"]["shifts"] == "3d"
    twin, (schedulers, _) = PlacementTwin.load(products["twin"]), load_schedulers(products["policy"])
    charts = {chart.title: chart for chart in learning_charts(twin.report, schedulers, 100, [7])}
    assert [curve.name for curve in charts["Training in the twin"].curves] == ["seed 7"]


@pytest.mark.slow
def test_training_without_policies_from_the_clone(products: dict[str, Path], tmp_path: Path) -> None:
    """No seeds: they are neither evaluated, shown nor exported, all else is, and what is saved is what is loaded."""
    twin, (usual, _) = PlacementTwin.load(products["twin"]), load_schedulers(products["policy"])
    curves = dict.fromkeys(("reward_curve", "kl_curve", "held_out_curve"), np.zeros((0, 0)))
    without = usual._replace(trained=stacked([], usual.clone), **curves)
    save_schedulers(without, twin, tmp_path)
    loaded, _ = load_schedulers(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, without, loaded)
    names = {one.name for one in candidates_from(loaded, twin.encoding.cluster, RULES)}
    usual_names = {one.name for one in candidates_from(usual, twin.encoding.cluster, RULES)}
    assert usual_names - names == {TWIN_POLICY}
    shown = {chart.title for chart in learning_charts(twin.report, loaded, 100)}
    assert "Behaviour cloning" in shown
    assert "Training in the twin" not in shown
    with pytest.raises(ConfigError, match="no policy 'twin' to export"):
        policy_params(loaded, TWIN_POLICY, 0)
    for name in (TWIN_POLICY, "bc_greedy"):
        with pytest.raises(ConfigError, match="num_updates = 0"):
            row_of_seed(loaded, name, 3, [3])
    with pytest.raises(ConfigError, match="a seed of twin"):
        row_of_seed(usual, "bc_greedy", 3, [3])
    assert row_of_seed(usual, TWIN_POLICY, 3, [5, 3]) == 1
    facts = read_manifest(products["policy"]).extra
    nothing = {key: [] for key in ("training_reward", "reward_with_held_out_member", "kl_to_clone")}
    assert trained_in_words(facts | nothing) == [f"ladder: {facts['ladder']}"]


def test_a_log_without_a_day_after_training_is_refused_before_learning(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "nodes.csv").write_text("node_id,site,tier,cpu_cores\na,s,edge,2\nb,s,edge,2\n")
    (folder / "requests.csv").write_text(
        "request_id,arrival,site,status\n1,2024-03-01T00:00:00Z,s,completed\n"
    )
    config = replace(TINY, log=LogConfig(format="native", paths=("log",)))
    with pytest.raises(ConfigError, match="no shift has test days") as caught:
        do(tmp_path, config)
    assert "the last training day, 2024-03-01" in str(caught.value)
    assert not (tmp_path / "work" / "twin").exists()


def test_what_cannot_be_dealt_to_a_twins_members_is_refused_before_the_log_is_read(tmp_path: Path) -> None:
    three = replace(TINY, twin=AnswerConfig(num_members=3), judge=replace(TINY.judge, copies=3))
    for uneven, said in (
        (replace(TINY, judge=replace(TINY.judge, copies=3)), "3 replications"),
        (replace(three, train=replace(TINY.train, num_streams=3)), "num_streams = 3"),
    ):
        with pytest.raises(ConfigError, match=said):
            do(tmp_path, uneven)
    assert not (tmp_path / "work").exists()


@pytest.mark.slow
def test_what_does_not_belong_together_is_refused_before_judging(
    products: dict[str, Path], tmp_path: Path
) -> None:
    archive, twin = Archive(products["archive"] / "archive"), products["twin"]
    refuse_other_nodes(archive, twin)
    refuse_other_twin(products["policy"], twin)
    trained_on = dt.date.fromisoformat(read_manifest(twin).extra["train_days"][0])
    rows = archive.read("requests")
    is_last = pc.equal(pc.cast(rows["arrival"], pa.date32()), archive.days("requests")[-1])
    is_first_trained = pc.index(pc.equal(pc.cast(rows["arrival"], pa.date32()), trained_on), True).as_py()
    for name, kept in (
        ("shorter", rows.filter(pc.invert(is_last))),
        ("other", pa.concat_tables([rows.slice(0, is_first_trained), rows.slice(is_first_trained + 1)])),
    ):
        with ArchiveWriter(tmp_path / name, source={}, facts={}) as writer:
            writer.write("nodes", archive.nodes(), source="nodes", first_row=0, raw=None)
            writer.write("requests", kept, source="requests", first_row=0, raw=None)
    refuse_other_nodes(Archive(tmp_path / "shorter"), twin)
    with pytest.raises(ConfigError, match="fitted on another archive"):
        refuse_other_nodes(Archive(tmp_path / "other"), twin)
    other, manifest = tmp_path / "twin", read_manifest(twin)
    with writing(other, "twin", extra=manifest.extra | {"held_out_log_likelihood": 0.0}) as out:
        for name in manifest.files:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(twin / name, out / name)
    with pytest.raises(ConfigError, match="trained in another twin"):
        refuse_other_twin(products["policy"], other)
    with pytest.raises(ProductError, match="kind 'twin'"):
        build_bundle(tmp_path / "bundle", twin)


@pytest.mark.slow
def test_the_bundle_speaks_the_twins_encoding(products: dict[str, Path]) -> None:
    encoding = load_encoding(products["twin"])
    assert load_bundle_policy(products["bundle"] / "bundle", encoding).has_encoding(encoding)


@pytest.mark.slow
def test_golden_observations_hold_logged_ones(products: dict[str, Path]) -> None:
    seen = load_observed(products["policy"])
    golden = read_golden(products["bundle"] / "bundle", load_network(products["bundle"] / "bundle").contract)
    by_feature = golden["choices"].transpose(0, 2, 1).reshape(len(golden["choices"]), -1)
    kept = {row.tobytes() for row in np.concatenate([by_feature, golden["context"]], axis=1)}
    assert len(seen) > 100
    assert np.mean([row.astype(np.float32).tobytes() in kept for row in seen]) > 0.5
