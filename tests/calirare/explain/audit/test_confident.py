"""Confident learning's count, on an example worked by hand."""

import torch

from calirare.explain.audit import confident_joint


def test_the_joint_of_six_labels():
    # Thresholds: class 0: mean(.9, .8, .1, .65) = .6125; class 1: mean(.7, .3) = .5.
    first = torch.tensor([0.9, 0.8, 0.1, 0.65, 0.3, 0.7], dtype=torch.float64)
    given = torch.tensor([0, 0, 0, 0, 1, 1])
    # Counted: three of class 0 as 0, one (.1) as 1; of class 1 one as 1, one (.7) as 0.
    joint = confident_joint(torch.stack([first, 1 - first], 1), given)
    assert joint.tolist() == [[3, 1], [1, 1]]


def test_rows_sum_to_the_labels_of_a_class_where_some_reach_no_threshold():
    first = torch.tensor([0.9, 0.5, 0.2, 0.55], dtype=torch.float64)
    given = torch.tensor([0, 0, 1, 1])
    # Thresholds .7 and .625: the second and fourth label reach none and count with the others of their class.
    joint = confident_joint(torch.stack([first, 1 - first], 1), given)
    assert joint.tolist() == [[2, 0], [0, 2]]


def test_a_class_without_a_label_is_nobodys_true_class():
    p = torch.tensor([[0.1, 0.2, 0.7], [0.6, 0.3, 0.1], [0.2, 0.5, 0.3]], dtype=torch.float64)
    joint = confident_joint(p, torch.tensor([0, 0, 1]))
    assert joint[:, 2].tolist() == [0, 0, 0]
    assert joint.sum(1).tolist() == [2, 1, 0]
