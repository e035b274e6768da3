"""What a network says without its labels, or with others: a Newton step in closed form."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from torch import Tensor

from calirare.explain.class_labels import ClassLabels
from calirare.explain.network_labels import Field, NetworkLabels
from calirare.explain.voice import Voice


class NewtonVoice(Voice):
    """A network that is moved by its labels.

    Attributes:
        labels: of the network.
        factor: that the steps are stretched by.
    """

    labels: NetworkLabels | ClassLabels
    factor: float = 1.0

    @abc.abstractmethod
    def _field(self, nodes: Tensor) -> Field:
        """Returns what the network reads at nodes, as its labels take it."""

    @property
    def dear(self) -> bool:
        """See `Voice.dear`."""
        return isinstance(self.labels, ClassLabels) and self.labels.dear

    def without_each_label(self, nodes: Tensor) -> Tensor:
        """See `Voice.without_each_label`."""
        return self.log_odds(nodes) + self.factor * self.labels.change(self._field(nodes))

    def without_labels(self, nodes: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """See `Voice.without_labels`."""
        return self.log_odds(nodes) + self.factor * self.labels.change_without(self._field(nodes), sets)

    def with_each_label(self, nodes: Tensor, more: Tensor) -> Tensor:
        """See `Voice.with_each_label`: weights and features stay as they are."""
        own, other = self._field(nodes), self._field(more)
        return self.log_odds(nodes) + self.factor * self._of_two.change_with(own, other, self.log_odds(more))

    def with_labels(self, nodes: Tensor, more: Tensor, y: Tensor) -> Tensor:
        """See `Voice.with_labels`: labels of like nodes do not say the same thing twice."""
        own, other = self._field(nodes), self._field(more)
        return self.log_odds(nodes) + self.factor * self._of_two.change_with_all(own, other, self.log_odds(more), y)

    @property
    def _of_two(self) -> NetworkLabels:
        """The labels of a network of two classes."""
        assert isinstance(self.labels, NetworkLabels)
        return self.labels
