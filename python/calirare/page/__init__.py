"""A run as pages: one to hand over, of what was found and how far to believe it; and its review queue at work."""

from calirare.page.render import html_of
from calirare.page.review_session import Case, ReviewSession
from calirare.page.server import ReviewServer
from calirare.page.slices import Slice, slices_of
from calirare.page.variables import Variable, variables_of
from calirare.page.verdicts import RARE, REST, SKIP, UNSURE, Answer, Verdicts, export, other_nodes
