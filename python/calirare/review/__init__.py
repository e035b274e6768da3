"""The review queue of a run, worked through on a local page: every answer saved at once, and exported as labels."""

from calirare.review.desk import Case, Desk
from calirare.review.server import ReviewServer
from calirare.review.verdicts import RARE, REST, SKIP, UNSURE, Said, Verdicts, export

__all__ = ["RARE", "REST", "SKIP", "UNSURE", "Case", "Desk", "ReviewServer", "Said", "Verdicts", "export"]
