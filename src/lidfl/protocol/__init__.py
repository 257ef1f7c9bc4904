"""The protocol, without I/O: a round is a generator that yields requests and is sent the clients' replies.

Who answers, an in-process simulator or a fleet of remote clients, a round cannot tell; nor can it tell who is
honest. Whatever a client may do wrong is caught once, where its reply enters, counted, and treated as no reply.

| module | what it holds |
|---|---|
| `messages` | the list of models, requests and replies, the record of a round |
| `replies` | the checks on what comes back |
| `proposals` | how candidates are made; a new way is one function |
| `rounds` | the rounds themselves, and `drive`, which runs one |
"""

from lidfl.protocol.messages import (
    Answer,
    Birth,
    Child,
    Choose,
    ModelList,
    Outcome,
    Record,
    Replies,
    Request,
    Round,
    Train,
    Trained,
    Vote,
)
from lidfl.protocol.proposals import Aggregate, Gathered, Propose, from_aggregator, proposal, resolve_proposals
from lidfl.protocol.replies import valid_ballots, valid_updates
from lidfl.protocol.rounds import Elect, Rules, drive, lid_round, single_round

__all__ = [
    "Aggregate",
    "Answer",
    "Birth",
    "Child",
    "Choose",
    "Elect",
    "Gathered",
    "ModelList",
    "Outcome",
    "Propose",
    "Record",
    "Replies",
    "Request",
    "Round",
    "Rules",
    "Train",
    "Trained",
    "Vote",
    "drive",
    "from_aggregator",
    "lid_round",
    "proposal",
    "resolve_proposals",
    "single_round",
    "valid_ballots",
    "valid_updates",
]
