"""Which labels are probably wrong, and why: what models that have not seen a label say of it."""

from calirare.explain.audit.confident import confident_joint
from calirare.explain.audit.labels import AT_LEAST, audit_labels
from calirare.explain.audit.noise import LabelNoise, label_noise
from calirare.explain.audit.result import Audit
