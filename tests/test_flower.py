"""The Flower engine without processes: what it sends, what it accepts, and that it equals the simulator."""

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.app.message.arraychunk import ArrayChunk
from safetensors.torch import load_file

from lidfl import Experiment, LidflError, RunDirectory, cli, pick, run
from lidfl.flower import client_app, codec
from lidfl.flower.apps import pick_from, read_app
from lidfl.flower.client import deadline
from lidfl.flower.codec import ENVELOPE, FIELDS, UPDATE, Ask, Reply, Unreadable, Work
from lidfl.flower.dealt import Dealt, deal
from lidfl.flower.federation import interrupted_once, is_locked, play_app, play_locally
from lidfl.flower.fleet import Fleet, Limits, Refused, bounded
from lidfl.flower.members import Members
from lidfl.flower.server import Control, read_run_config
from lidfl.flower.server import run as serve
from lidfl.flower.template import write_app
from lidfl.flower.worker import Worker
from lidfl.simulator import Simulator
from lidfl.world import draw_byzantine, load_data
from tests.command import lines_without_times
from tests.local_grid import Handle, LocalGrid

PLURALITY: dict[str, Any] = dict(byzantine_fraction=0.5, attack="sign_flip", vote_attack="worst")
RANKED: dict[str, Any] = dict(method="lidfl-ranked", byzantine_fraction=0, list_size=2)
# A simulated attacker trains what most honest clients like, which a real one cannot know: here all train the same.
ATTACKED: dict[str, Any] = PLURALITY | dict(method="lidfl-ranked", parent="uniform")
QUICK = Limits(deadline=0.3, poll=0.01)


def six(**settings: Any) -> Experiment:
    return Experiment.of(dict(num_clients=6, rounds=8, eval_every=4, engine="loop", checkpoint_every=1) | settings)


def grid_of(experiment: Experiment, folder: Path) -> LocalGrid:
    """A node for every client, with the data and the behaviour that the experiment deals it."""
    folder.mkdir(exist_ok=True)
    deal(experiment, load_data(experiment), folder)
    app, byzantine = client_app(Dealt(str(folder)), testing=True), draw_byzantine(experiment)
    bad = {"attack": experiment.attack, "vote-attack": experiment.vote_attack}
    config = {"num-partitions": experiment.num_clients}
    return LocalGrid(
        {
            # node ids are random in Flower; here they run against the order of the clients
            1000 - client: (app, {"partition-id": client, **config, **(bad if client in byzantine else {})})
            for client in range(experiment.num_clients)
        }
    )


@pytest.mark.parametrize("settings", [PLURALITY, RANKED, ATTACKED], ids=["plurality", "ranked", "ranked, attacked"])
def test_the_list_equals_the_simulators(tmp_path: Path, settings: dict[str, Any]) -> None:
    simulated, real = six(**settings, out=str(tmp_path / "sim")), six(**settings, out=str(tmp_path / "real"))
    run(simulated)
    serve(real, Control(), grid_of(real, tmp_path / "data"), Simulator.of)
    ours, theirs = (RunDirectory(e.out).final_state().models for e in (simulated, real))
    difference = float((ours.parameters - theirs.parameters).abs().max())
    # Several jurors may propose the same model. The simulator sums losses in another order, so that such ties may
    # fall the other way, and a mean of the same models in another order has other last bits.
    assert difference == 0 if settings is PLURALITY else difference < 1e-6
    if settings is PLURALITY:
        assert (ours.ids, ours.parents, ours.ages) == (theirs.ids, theirs.parents, theirs.ages)
        for one, other in zip(*map(lines_without_times, (Path(simulated.out), Path(real.out))), strict=True):
            common = one.keys() & other.keys() - {"loss"}
            assert [one[key] for key in common] == [other[key] for key in common]


def test_a_run_goes_on_after_any_round_with_other_node_ids(tmp_path: Path) -> None:
    alone, stopped = (six(**PLURALITY, rounds=4, out=str(tmp_path / name)) for name in ("alone", "stopped"))
    serve(alone, Control(), grid_of(alone, tmp_path / "data"), Simulator.of)
    serve(stopped.with_settings(rounds=2), Control(), grid_of(stopped, tmp_path / "data"), Simulator.of)
    again = grid_of(stopped, tmp_path / "data")
    again.apps = {node + 7: app for node, app in again.apps.items()}
    again.contexts = {node + 7: context for node, context in again.contexts.items()}
    again.online = set(again.apps)
    serve(stopped, Control(resume=True), again, Simulator.of)
    assert (tmp_path / "alone" / "models.safetensors").read_bytes() == (
        tmp_path / "stopped" / "models.safetensors"
    ).read_bytes()


def test_a_directory_that_another_process_writes_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    experiment = six(**PLURALITY, rounds=2, out=str(tmp_path / "run"))
    serve(experiment, Control(), grid_of(experiment, tmp_path / "data"), Simulator.of)
    before = (tmp_path / "run" / "models.safetensors").read_bytes()
    with RunDirectory(experiment.out).alone():
        for control in (Control(resume=True), Control(overwrite=True)):
            with pytest.raises(LidflError, match="written by another process"):
                serve(experiment, control, grid_of(experiment, tmp_path / "data"), Simulator.of)
    assert (tmp_path / "run" / "models.safetensors").read_bytes() == before


def test_nobody_else_writes_to_the_directory_of_a_server_at_work(tmp_path: Path) -> None:
    experiment = six(**PLURALITY, rounds=2, out=str(tmp_path / "run"))
    seen = []

    def audit(experiment: Experiment) -> Simulator:
        with pytest.raises(LidflError, match="written by another process"):
            run(experiment, overwrite=True)
        seen.append(is_locked(Path(experiment.out) / "lock"))
        return Simulator.of(experiment)

    serve(experiment, Control(), grid_of(experiment, tmp_path / "data"), audit)
    assert seen == [True]
    assert not is_locked(Path(experiment.out) / "lock")


# What travels


def test_only_new_models_are_sent_and_none_is_judged_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = six(**PLURALITY, out=str(tmp_path / "run"))
    grid = grid_of(experiment, tmp_path / "data")
    judged: Counter[tuple[int, str]] = Counter()
    judge = Worker.loss

    def counted(self: Worker, vector: codec.Vector) -> float:
        judged[self.ask.client, codec.content_hash(vector)] += 1
        return judge(self, vector)

    monkeypatch.setattr(Worker, "loss", counted)
    serve(experiment, Control(), grid, Simulator.of)
    assert max(judged.values()) == 1
    votes = [codec.read_ask(m.content) for m in grid.pushed if m.metadata.message_type == "evaluate"]
    trains = [codec.read_ask(m.content) for m in grid.pushed if m.metadata.message_type == "train"]
    assert all(len(ask.vectors) == 1 for ask in votes if ask.round_index > 0), "the one new candidate"
    assert not any(ask.vectors for ask in trains if ask.round_index > 0)


def test_the_bytes_of_a_round_are_what_the_docs_say(tmp_path: Path) -> None:
    """A vote sends c models to each of m clients; a training brings one update back."""
    experiment = six(**PLURALITY, out=str(tmp_path / "run"))
    serve(experiment, Control(), grid_of(experiment, tmp_path / "data"), Simulator.of)
    model = 4 * 650
    for line in lines_without_times(tmp_path / "run")[1:]:
        assert 6 * model < line["bytes"]["sent"] < 6 * model + 7 * 600
        assert model < line["bytes"]["received"] < model + 7 * 200


def test_a_client_that_lost_its_cache_says_so_and_is_sent_it_again(tmp_path: Path) -> None:
    experiment = six(**PLURALITY, out=str(tmp_path / "run"))
    plain = six(**PLURALITY, out=str(tmp_path / "plain"))
    serve(plain, Control(), grid_of(plain, tmp_path / "data"), Simulator.of)
    grid = grid_of(experiment, tmp_path / "data")

    def forgetful(app: Handle) -> Handle:
        def handle(message: Message, context: Context) -> Message | None:
            context.state = RecordDict()
            return app(message, context)

        return handle

    grid.apps = {node: forgetful(app) for node, app in grid.apps.items()}
    serve(experiment, Control(), grid, Simulator.of)
    assert (tmp_path / "run" / "models.safetensors").read_bytes() == (
        tmp_path / "plain" / "models.safetensors"
    ).read_bytes()


def test_requests_and_replies_come_back_as_they_were() -> None:
    vector = np.array([1.5, -2.25], dtype=np.float32)
    name = codec.content_hash(vector)
    ask = Ask("vote", 3, 2, (name, "other"), 4, Work(7, 10, 16, 0.01, 0.9), {name: vector})
    read = codec.read_ask(codec.pack_ask(ask))
    assert read.vectors[name].tolist() == vector.tolist()
    assert {**vars(read), "vectors": None} == {**vars(ask), "vectors": None}
    reply = Reply("trained", 1, (2, 0), ("x",), vector)
    back = codec.read_reply(codec.pack_reply(reply), dim=2)
    assert back.update is not None
    assert back.update.tolist() == vector.tolist()
    assert {**vars(back), "update": None} == {**vars(reply), "update": None}


def test_a_model_that_is_not_what_its_hash_says_is_refused_by_the_client() -> None:
    ask = Ask("vote", models=("a" * 64,), vectors={"a" * 64: np.zeros(3, dtype=np.float32)})
    with pytest.raises(Unreadable, match="hash"):
        codec.read_ask(codec.pack_ask(ask))


# What is accepted


def fields(**changes: Any) -> ConfigRecord:
    entries: dict[str, Any] = dict(kind="ballot", parent=0, ballot=[0], missing=[])
    return ConfigRecord(entries | changes)


def update(dtype: str = "float32", shape: Any = (2,), stype: str = codec.RAW, data: bytes = bytes(8)) -> RecordDict:
    return RecordDict({FIELDS: fields(), UPDATE: ArrayRecord({"u": Array(dtype, shape, stype, data)})})


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({FIELDS: ArrayRecord()}),
        RecordDict({FIELDS: fields(kind=1)}),
        RecordDict({FIELDS: fields(parent=0.5)}),
        RecordDict({FIELDS: fields(ballot=[0.5])}),
        RecordDict({FIELDS: fields(ballot=[True])}),
        RecordDict({FIELDS: fields(ballot=[0] * 10_001)}),
        RecordDict({FIELDS: fields(missing="x")}),
        RecordDict({FIELDS: fields(), UPDATE: ConfigRecord({"u": 1})}),
        RecordDict({FIELDS: fields(), UPDATE: ArrayRecord({})}),
        update(dtype="float64"),
        update(dtype="object"),
        update(stype="numpy.ndarray"),
        update(stype="pickle"),
        update(shape=(10**12,)),
        update(shape=(1, 2)),
        update(data=bytes(7), shape=(1,)),
        update(data=bytes(12), shape=(3,)),
        update(data=bytes(10**7), shape=(10**7 // 4,)),
    ],
)
def test_what_is_not_a_reply_is_never_decoded(content: RecordDict) -> None:
    with pytest.raises(Unreadable):
        codec.read_reply(content, dim=2)


def test_an_array_that_names_one_piece_a_million_times_is_not_assembled() -> None:
    piece = ArrayChunk(memoryview(bytes(5_000_000)))
    array = Array("float32", (1_250_000,), codec.RAW, bytes(5_000_000))
    head, body = array.deflate().split(b"{", 1)
    bomb = json.loads(b"{" + body) | {"arraychunk_ids": [0] * 1_000_000}
    content = head + json.dumps(bomb).encode()
    header = content[: content.index(b"{")].replace(
        str(len(body) + 1).encode(), str(len(content) - len(head)).encode()
    )
    with bounded(20_000_000, 1.0), pytest.raises(Refused, match="too large"):
        Array.inflate(header + content[len(head) :], {piece.object_id: piece})
    with bounded(20_000_000, 1.0):
        assert len(Array.inflate(array.deflate(), {piece.object_id: piece}).data) == 5_000_000


def silent(_message: Message, _context: Context) -> None:
    return None


def replying(make: Callable[[Message], RecordDict]) -> Handle:
    return lambda message, _: codec.reply_with(make(message), message)


def ballot(*_: object) -> RecordDict:
    return codec.pack_reply(Reply("ballot", ballot=(0,)))


def raising(_message: Message, _context: Context) -> None:
    raise RuntimeError("out of order")


def ask_all(grid: LocalGrid, limits: Limits = QUICK) -> tuple[dict[int, RecordDict], Counter[str]]:
    fleet = Fleet(grid, limits)
    contents = {node: codec.pack_ask(Ask("vote")) for node in fleet.nodes()}
    found = dict(fleet.ask(contents, "evaluate", "0", most_bytes=100))
    return found, fleet.refused


def test_a_node_that_is_silent_or_fails_costs_only_its_own_reply() -> None:
    found, refused = ask_all(LocalGrid({1: (silent, {}), 2: (replying(ballot), {}), 3: (raising, {})}))
    assert list(found) == [2]
    assert refused == {"late": 1, "failed": 1}


def test_a_reply_counts_only_with_the_secret_of_its_own_request() -> None:
    def without(message: Message, _: Context) -> Message:
        return Message(ballot(), reply_to=message)

    def guessed(message: Message, _: Context) -> Message:
        content = ballot()
        content[ENVELOPE] = ConfigRecord({"secret": "0" * 32})
        return Message(content, reply_to=message)

    seen: list[Message] = []

    def replayed(message: Message, _: Context) -> Message:
        seen.append(message)
        content = ballot()
        content[ENVELOPE] = ConfigRecord({"secret": seen[0].content.config_records[ENVELOPE]["secret"]})
        return Message(content, reply_to=message)

    grid = LocalGrid({1: (without, {}), 2: (guessed, {}), 3: (replayed, {})})
    found, refused = ask_all(grid)
    assert list(found) == [3]
    found, refused = ask_all(grid)
    assert not found, "an old secret is worth nothing"
    assert refused["forged"] == 6, "each is asked once more"


def test_each_node_has_a_secret_of_its_own_in_every_request() -> None:
    grid = LocalGrid({node: (replying(ballot), {}) for node in range(1, 6)})
    for _ in range(3):
        ask_all(grid)
    secrets = {str(message.content.config_records[ENVELOPE]["secret"]) for message in grid.pushed}
    assert len(secrets) == 15


def test_messages_in_flight_are_bounded_and_live_as_long_as_their_deadline() -> None:
    def slowly(_message: Message) -> RecordDict:
        sleep(0.05)
        return ballot()

    grid = LocalGrid({node: (replying(slowly), {}) for node in range(1, 21)})
    found, _ = ask_all(grid, Limits(in_flight=3, deadline=5.0, poll=0.01))
    assert len(found) == 20
    assert grid.most_in_flight == 3
    assert {message.metadata.ttl for message in grid.pushed} == {5.0}


# Who is who


def hello(partition: int) -> Handle:
    return replying(lambda _: codec.pack_reply(Reply("hello", parent=partition)))


def test_whatever_nodes_claim_each_has_one_number_and_each_number_one_node(tmp_path: Path) -> None:
    claims = {11: 0, 12: 0, 13: 0, 14: -5, 15: 10**9, 16: 2}
    grid = LocalGrid({node: (hello(claim), {}) for node, claim in claims.items()})
    members = Members(Fleet(grid, QUICK), 6, tmp_path / "nodes.json").present()
    assert sorted(members) == list(range(6))
    assert sorted(members.values()) == sorted(claims)


def test_there_are_never_more_clients_than_the_experiment_has(tmp_path: Path) -> None:
    grid = LocalGrid({node: (hello(0), {}) for node in range(1, 9)})
    assert len(Members(Fleet(grid, QUICK), 3, tmp_path / "nodes.json").present()) == 3


def test_a_node_keeps_its_number_when_it_leaves_and_comes_back(tmp_path: Path) -> None:
    grid = LocalGrid({node: (hello(node), {}) for node in range(3)})
    members = Members(Fleet(grid, QUICK), 3, tmp_path / "nodes.json")
    assert members.present() == {0: 0, 1: 1, 2: 2}
    grid.online = {0, 2}
    assert members.present() == {0: 0, 2: 2}
    grid.online = {0, 1, 2}
    asked = len(grid.pushed)
    again = Members(Fleet(grid, QUICK), 3, tmp_path / "nodes.json")
    assert again.present() == {0: 0, 1: 1, 2: 2}
    assert len(grid.pushed) == asked, "nobody has to say it twice"


def test_a_run_begins_when_every_node_has_answered_even_those_that_are_known(tmp_path: Path) -> None:
    deaf = iter([True, True, False])

    def late(message: Message, context: Context) -> Message | None:
        return None if next(deaf) else hello(1)(message, context)

    (tmp_path / "nodes.json").write_text('{"0": 1, "1": 2}')
    grid = LocalGrid({1: (hello(0), {}), 2: (late, {})})
    Members(Fleet(grid, QUICK), 2, tmp_path / "nodes.json").wait(30)
    assert [message.metadata.dst_node_id for message in grid.pushed].count(1) == 1
    assert next(deaf, None) is None


def test_a_node_that_will_not_say_who_it_is_does_not_hold_up_every_round(tmp_path: Path) -> None:
    grid = LocalGrid({1: (hello(0), {}), 2: (silent, {})})
    members = Members(Fleet(grid, QUICK), 2, tmp_path / "nodes.json")
    for _ in range(5):
        assert members.present() == {0: 1}
    assert len(grid.pushed) == 2


# The client


def test_a_client_that_takes_too_long_ends_by_itself() -> None:
    def hang() -> None:
        with deadline(0.05):
            while True:
                pass

    with pytest.raises(TimeoutError, match="not done"):
        hang()


def test_misbehaviour_is_an_option_for_tests_that_must_be_asked_for(tmp_path: Path) -> None:
    experiment = six(out=str(tmp_path / "run"))
    deal(experiment, load_data(experiment), tmp_path)
    task = Dealt(str(tmp_path))
    with pytest.raises(LidflError, match="testing=True"):
        Worker(task, Ask("vote"), {"attack": "sign_flip"}, testing=False)
    with pytest.raises(LidflError, match="accomplices"):
        Worker(task, Ask("vote"), {"attack": "lie"}, testing=True)


def test_a_task_without_its_functions_is_one_clear_line() -> None:
    with pytest.raises(LidflError, match=r"model\(\) and data"):
        client_app(object())


def test_a_users_own_loss_decides_its_ballot(tmp_path: Path) -> None:
    experiment = six(out=str(tmp_path / "run"))
    deal(experiment, load_data(experiment), tmp_path)

    class Norm(Dealt):
        def loss(self, module: torch.nn.Module, _images: torch.Tensor, _labels: torch.Tensor) -> float:
            return -float(sum(p.abs().sum() for p in module.parameters()))

    worker = Worker(Norm(str(tmp_path)), Ask("vote"), {}, testing=False)
    small, large = (np.full(650, value, dtype=np.float32) for value in (0.1, 3.0))
    assert worker.ballot([worker.loss(small), worker.loss(large)]) == (1,)


def test_run_config_overrides_the_experiment_and_leaves_what_is_empty() -> None:
    config = {"rounds": 3, "out": "", "in-flight": 2, "resume": True, "something-else": 1}
    experiment, control = read_run_config(Experiment(out="runs/x"), config)
    assert (experiment.rounds, experiment.out, experiment.checkpoint_every) == (3, "runs/x", 1)
    assert control == Control(resume=True, in_flight=2)


def test_the_example_is_what_init_flower_writes(tmp_path: Path) -> None:
    write_app(tmp_path / "flower-app")
    example = Path(__file__).parents[1] / "examples" / "flower-app"
    written = sorted(path.relative_to(tmp_path / "flower-app") for path in (tmp_path / "flower-app").rglob("*.*"))
    assert len(written) == 6
    for path in written:
        assert (example / path).read_text() == (tmp_path / "flower-app" / path).read_text()
    with pytest.raises(LidflError, match="not empty"):
        write_app(tmp_path / "flower-app")


def test_an_app_is_given_only_settings_that_it_lists(tmp_path: Path) -> None:
    write_app(tmp_path / "listed_app")
    app = read_app(tmp_path / "listed_app", {"rounds": 3, "num_clients": 9, "out": "runs/mine"})
    assert app.config == {"rounds": 3, "num-clients": 9, "out": "runs/mine"}
    played = app.experiment
    assert (played.rounds, played.num_clients, played.out, played.num_byzantine) == (3, 9, "runs/mine", 6)
    assert played.model == "listed_app.task:model"
    assert not app.testing
    with pytest.raises(
        LidflError, match=r"does not list 'learning-rate' under \[tool\.flwr\.app\.config\]; add it"
    ):
        read_app(tmp_path / "listed_app", {"learning_rate": 0.1})


def test_nodes_of_an_app_that_is_not_for_testing_are_not_told_to_attack(tmp_path: Path) -> None:
    write_app(tmp_path / "honest_app")
    app = read_app(tmp_path / "honest_app", {"out": str(tmp_path / "run")})
    with pytest.raises(LidflError, match=r"client_app\(task, testing=True\)"):
        play_app(app, {0: {"attack": "sign_flip"}})
    assert not (tmp_path / "run").exists()


def test_a_node_picks_from_the_run_of_an_app_by_its_own_data(tmp_path: Path) -> None:
    write_app(tmp_path / "picked_app")
    app = read_app(tmp_path / "picked_app", {"rounds": 2, "num_clients": 4, "out": str(tmp_path / "run")})
    node = client_app(app.task)
    grid = LocalGrid({10 + c: (node, {"partition-id": c, "num-partitions": 4}) for c in range(4)})
    serve(app.experiment, Control(), grid, audit=None)
    choice = pick_from(tmp_path / "run", app, client=2)
    _, (images, labels) = app.task.data(2, 4)
    losses = []
    for row in RunDirectory(tmp_path / "run").final_state().models.parameters:
        weight, bias = row[:640].reshape(10, 64), row[640:]
        losses.append(float(torch.nn.functional.cross_entropy(images.flatten(1) @ weight.T + bias, labels)))
    assert choice.losses == pytest.approx(losses, rel=1e-5)
    assert choice.position == int(np.argmin(losses))
    assert load_file(choice.path)["1.weight"].shape == (10, 64)
    with pytest.raises(LidflError, match="there is no client 4; the run has clients 0 … 3"):
        pick_from(tmp_path / "run", app, client=4)
    with pytest.raises(LidflError, match="give its folder as --app"):
        pick(tmp_path / "run", client=2)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("", "is not a Flower app"),
        ("from nowhere import app", "cannot load broken_app.server_app:app of .*nowhere"),
        ("app = object()", "is not made of lidfl.flower.server_app and client_app"),
    ],
)
def test_what_is_no_app_of_lidfl_is_named_in_one_line(tmp_path: Path, broken: str, message: str) -> None:
    folder = tmp_path / "broken_app"
    if broken:
        write_app(folder)
        (folder / "broken_app" / "server_app.py").write_text(broken)
        for name in [name for name in sys.modules if name.startswith("broken_app")]:
            del sys.modules[name]
    with pytest.raises(LidflError, match=message):
        read_app(folder, {})


def test_attacks_that_need_accomplices_are_refused_before_anything_starts(tmp_path: Path) -> None:
    for settings in (dict(attack="lie"), dict(vote_attack="coordinated")):
        with pytest.raises(LidflError, match=f"'{next(iter(settings.values()))}' needs accomplices"):
            play_locally(six(out=str(tmp_path / "run"), byzantine_fraction=0.5, **settings))
    assert not (tmp_path / "run").exists()


def test_the_first_interrupt_counts_and_those_that_follow_do_not() -> None:
    def impatient() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupted_once():
        impatient()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_server_ends_soon_after_the_superlink_that_started_it() -> None:
    code = (
        "import subprocess, sys, time, lidfl.flower.server as server; server.GRACE = 0.1\n"
        "parent = subprocess.Popen(['sleep', '0.5'])\n"
        "server.end_with_parent(['flwr-serverapp', '--parent-pid', str(parent.pid)])\n"
        "parent.wait(); print('orphaned', flush=True); time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=40, check=False)
    assert (done.returncode, done.stdout) == (1, b"orphaned\n"), done.stderr


def test_the_command_counts_nodes_and_byzantine_ones_exactly() -> None:
    for nodes in range(1, 40):
        for byzantine in range(nodes):
            settings = cli.Federation(action="up", nodes=nodes, byzantine=byzantine).settings()
            assert Experiment.of(settings).num_byzantine == byzantine


def test_a_client_app_imports_torch_only_when_there_is_something_to_compute() -> None:
    code = "import sys, lidfl.flower.client; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_client_leaves_the_process_as_it_was() -> None:
    assert float(torch.tensor(1e-40) * 1) > 0, "an earlier test left denormals flushed to 0"
