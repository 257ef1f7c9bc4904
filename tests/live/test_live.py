"""A run while it goes: what the page is told, metrics that Prometheus can read, and who may ask."""

import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.request import urlopen

import pytest

from lidfl import Experiment, LidflError, run
from lidfl.live.metrics import metrics
from lidfl.live.serving import served
from lidfl.live.watch import NodeView, Watch
from lidfl.protocol import Birth, ModelList
from lidfl.runs.loop import Progress
from lidfl.runs.record import RoundRecord

EVIL = '<script>document.title="owned"</script>"\\\n'


def nodes() -> list[NodeView]:
    return [
        NodeView(0, "well", 2.5, 3, 3, 5_200, 300),
        NodeView(1, "misbehaving", 9.0, 1, 3, 5_200, 100, {"garbage": 2}, EVIL, 0.25),
    ]


ROLL = dict(clients=4, joined=2, left=1, honest=2, seats=2, quota=2, room=1, margin_at_worst=-1)
"""Three were planned with, of whom two are taken to be honest."""


def progress(number: int, margin: int, votes: dict[int, int], **more: object) -> Progress:
    import torch

    models = ModelList.initial(torch.zeros(3), 2)
    born = (Birth(number + 2, (0,), (1,)),)
    usual = dict(round_index=number, born=born, votes=votes, removed=(), rejected={}, margin_estimate=margin)
    record = RoundRecord(**(usual | dict(seconds=2.5) | more))  # type: ignore[arg-type]
    return Progress(Experiment(rounds=9), models, record)


@pytest.fixture
def watch() -> Watch:
    watch = Watch("a federation", rounds=9, voters=3, nodes=nodes)
    watch.observe(progress(0, 2, {0: 1, 1: 1, 2: 1}))
    watch.observe(progress(1, 1, {0: 1, 1: 1}, late=(1,), refused={"garbage": 2, EVIL: 1}, traffic={}))
    return watch


@pytest.fixture
def address(watch: Watch) -> Iterator[str]:
    with served(watch, 0) as address:
        yield address


def test_the_page_is_told_only_the_rounds_that_it_has_not_seen(address: str) -> None:
    state = json.load(urlopen(f"{address}state.json?since=1"))
    assert [line["round"] for line in state["rounds"]] == [1]
    assert (state["title"], state["of"], state["voters"]) == ("a federation", 9, 3)
    for odd in ("-5", "x", "99999999999999999999", "1&since=2", ""):
        assert "rounds" in json.load(urlopen(f"{address}state.json?since={odd}"))
    for odd in ("%C2%B2", "9" * 5_000, "-", "%00", "1.5"):
        assert len(json.load(urlopen(f"{address}state.json?since={odd}"))["rounds"]) == 2, "all that there is"


def test_alerts_tell_a_shrinking_margin_missing_ballots_and_who_misbehaves(watch: Watch) -> None:
    assert [alert.text for alert in watch.alerts] == [
        "the margin has shrunk from 2 to 1",
        "1 of 3 ballots are missing",
        "a node misbehaves: 2 garbage",
        "late: client 1",
    ]
    assert {alert.round for alert in watch.alerts} == {2}


def test_a_roll_that_may_be_one_of_sybils_is_an_alert_and_a_metric(watch: Watch) -> None:
    watch.observe(progress(2, 1, {0: 4}, roll=ROLL))
    assert watch.alerts[-1].text == (
        "the roll has 4 nodes, 2 joined and 1 left; if all newcomers are malicious, honest ballots are 1 short of "
        "the quota, and good models can be voted out"
    )
    assert watch.voters == 4
    watch.observe(progress(3, 1, {0: 4}, roll=ROLL))
    assert watch.alerts[-1].round == 3, "told once"
    lines = metrics(watch).splitlines()
    assert "lidfl_roll_margin_at_worst -1" in lines
    assert "lidfl_roll_clients 4" in lines


def test_metrics_are_in_the_format_of_prometheus_whatever_nodes_say(watch: Watch) -> None:
    text = metrics(watch)
    sample = re.compile(r'[a-z_]+(\{[a-z]+="(?:[^"\\\n]|\\.)*"\})? -?[0-9.e+-]+')
    values = {}
    for line in text.splitlines():
        assert line.startswith("# ") or sample.fullmatch(line), line
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            values[name] = float(value)
    assert values["lidfl_rounds_done_total"] == 2
    assert values["lidfl_margin"] == 1
    assert values["lidfl_ballots"] == 2
    assert values['lidfl_replies_unused_total{reason="garbage"}'] == 2
    assert values['lidfl_node_seconds{client="1"}'] == 9
    assert values['lidfl_nodes{state="misbehaving"}'] == 1
    assert text.endswith("\n")


def test_a_counter_has_every_digit_however_far_it_has_counted() -> None:
    node = NodeView(3, "well", 0.1234567891, 1, 1, 1_234_567_891, 98_765_432_109_876_543)
    text = metrics(Watch("a federation", rounds=9, voters=3, nodes=lambda: [node]))
    assert 'lidfl_node_sent_bytes_total{client="3"} 1234567891\n' in text
    assert 'lidfl_node_received_bytes_total{client="3"} 98765432109876543\n' in text
    assert 'lidfl_node_seconds{client="3"} 0.1234567891\n' in text


def test_nobody_is_answered_who_asks_for_another_machine_or_another_path(address: str) -> None:
    port = int(address.rstrip("/").rpartition(":")[2])
    for host, path, status in (
        ("evil.example:80", "/", 403),
        ("", "/state.json", 403),
        (f"localhost:{port}", "/metrics", 200),
        (f"127.0.0.1:{port}", "/../../etc/passwd", 404),
        (f"127.0.0.1:{port}", "/page.html", 404),
        (f"127.0.0.1:{port}", "http://[", 404),
    ):
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", path, headers={"Host": host})
        assert connection.getresponse().status == status
        connection.close()
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("POST", "/")
    assert connection.getresponse().status == 501, "nothing can be changed"
    connection.close()


def test_a_port_that_is_taken_is_one_line(address: str, watch: Watch) -> None:
    port = int(address.rstrip("/").rpartition(":")[2])
    with pytest.raises(LidflError, match="choose another"), served(watch, port):
        pass


def test_a_simulation_can_be_watched_too(tmp_path: Path) -> None:
    watch = Watch("simulated", rounds=12, voters=10)
    run(Experiment(rounds=12, num_clients=10, eval_every=4, out=str(tmp_path / "run")), observe=watch.observe)
    state = watch.state()
    assert len(state["rounds"]) == 12
    assert any("honest" in birth for line in state["rounds"] for birth in line["born"])
    assert "lidfl_accuracy" in metrics(watch)


def test_the_example_dashboard_asks_for_metrics_that_there_are(watch: Watch) -> None:
    dashboard = json.loads((Path(__file__).parents[2] / "docs" / "dashboard.json").read_text())
    asked = {name for panel in dashboard["panels"] for target in panel["targets"] for name in found(target["expr"])}
    watch.observe(progress(2, 1, {0: 3}, accuracy={0: 0.5}, deployed_accuracy=0.5, roll=ROLL))
    assert asked
    assert asked <= set(found(metrics(watch)))


def found(text: str) -> list[str]:
    return re.findall(r"lidfl_[a-z_]+", text)
