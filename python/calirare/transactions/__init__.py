"""Tables of transactions: their parties, and for each transaction columns that know only the past."""

from calirare.transactions.description import KnownAt
from calirare.transactions.table import Transactions
