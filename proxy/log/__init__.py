"""The log: a tree of messages in SQLite, one writer thread, and the feedback on what hangs in it."""

from burnish.proxy.log.log import Log
from burnish.proxy.log.rated import Rating
from burnish.proxy.log.retention import Keep
from burnish.proxy.log.runs import Day
from burnish.proxy.log.tally import RatingCounts, RatingTally, ReadyCounts

__all__ = ["Day", "Keep", "Log", "Rating", "RatingCounts", "RatingTally", "ReadyCounts"]
