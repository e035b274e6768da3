"""One HTML page of a run, to hand over: what was found, how far to believe it, where not, and how to make it again."""

from calirare.page.render import html_of
from calirare.page.slices import Slice, slices_of
from calirare.page.variables import Variable, variables_of

__all__ = ["Slice", "Variable", "html_of", "slices_of", "variables_of"]
