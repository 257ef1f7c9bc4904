"""The protocol, without I/O: a round is a generator that yields requests and is sent the clients' replies.

Who answers, an in-process simulator or a fleet of remote clients, a round cannot tell; nor can it tell who is
honest. Whatever a client may do wrong is caught once, where its reply enters, counted, and treated as no reply.

| module | what it holds |
|---|---|
| `messages` | the list of models, requests and replies, the server's record of a round |
| `replies` | the checks on what comes back |
| `rules` | what a round goes by, and what it has gathered |
| `proposing` | how candidates are collected from proposals |
| `rounds` | the rounds themselves |
"""

from lidfl.protocol.messages import (
    SERVER,
    Answer,
    Birth,
    Choose,
    ModelList,
    Outcome,
    Proposed,
    Record,
    Replies,
    Request,
    Round,
    ServerLosses,
    ServerTrains,
    Train,
    Trained,
    Validate,
    Vote,
)
from lidfl.protocol.proposing import propose, same, sample
from lidfl.protocol.replies import all_finite, first_choices, valid_ballots, valid_updates, valid_verdicts
from lidfl.protocol.rounds import lid_round, local_round, single_round, succeed, unplayed
from lidfl.protocol.rules import Asking, Canonical, Elect, Gathered, Propose, Rules

__all__ = [
    "SERVER",
    "Answer",
    "Asking",
    "Birth",
    "Canonical",
    "Choose",
    "Elect",
    "Gathered",
    "ModelList",
    "Outcome",
    "Propose",
    "Proposed",
    "Record",
    "Replies",
    "Request",
    "Round",
    "Rules",
    "ServerLosses",
    "ServerTrains",
    "Train",
    "Trained",
    "Validate",
    "Vote",
    "all_finite",
    "first_choices",
    "lid_round",
    "local_round",
    "propose",
    "same",
    "sample",
    "single_round",
    "succeed",
    "unplayed",
    "valid_ballots",
    "valid_updates",
    "valid_verdicts",
]
