"""Is everything here that the bridge stands on, is it as it was recorded, and does each way of running work?"""

from bridge.doctor.check import Check, State
from bridge.doctor.examine import examine

__all__ = ["Check", "State", "examine"]
