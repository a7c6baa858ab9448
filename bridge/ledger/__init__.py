"""The ledger: every node that did not run in TVM, and every other way in which a dead end was met."""

from bridge.ledger.event import DeadEnd, Event
from bridge.ledger.ledger import Ledger
from bridge.ledger.record import End, Measure, PeerAnswer, Placement, Record, Trial, Way

__all__ = ["DeadEnd", "End", "Event", "Ledger", "Measure", "PeerAnswer", "Placement", "Record", "Trial", "Way"]
