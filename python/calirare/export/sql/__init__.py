"""A run written as one SQL query, which scores tables where they lie."""

from calirare.export.sql.dialects import DIALECTS, Dialect
from calirare.export.sql.names import Names
from calirare.export.sql.query import notes_on, query_of

__all__ = ["DIALECTS", "Dialect", "Names", "notes_on", "query_of"]
