"""A run: settings, training in stages, outcome, folder, report, predictions, recalibration, update."""

from calirare.run.changes import Updated
from calirare.run.choice import Choice, Row
from calirare.run.columns import COLUMNS, predictions, scores_of
from calirare.run.data import Report
from calirare.run.data_settings import NO_LABEL, UNKNOWN, Data, Labels
from calirare.run.deciding import Decided, Deciding, decided, with_rule
from calirare.run.explaining import resolved_calibrate_on
from calirare.run.folder import LABELS, SavedRun, write_json
from calirare.run.interval_nodes import known_logits
from calirare.run.judging import TOGETHER
from calirare.run.new_nodes import NodeScorer
from calirare.run.next_labels import NextLabels
from calirare.run.outcome import Outcome
from calirare.run.parties import amounts_of, parties_of
from calirare.run.probabilities import PrevalenceRequest, Probabilities, p_rare
from calirare.run.recalibration import Recalibrated, recalibrated
from calirare.run.result import RareView
from calirare.run.saved_scoring import load, load_scoring, read_scored, scored_graph, write_scoring
from calirare.run.schema import Option, options_of, typed, words_for
from calirare.run.score_only import Loaded, Source, Streamed, with_threshold, write_scores
from calirare.run.scored import Scored, Totals
from calirare.run.scoring import Scorer, to_stderr
from calirare.run.settings import MAX_SEED, Calibration, IntervalNodes, Settings, Training
from calirare.run.stages import train
from calirare.run.tables import PARTIES, QUEUE, REVIEWED, TRANSACTIONS, inert, write_csv, write_predictions
from calirare.run.unused import ignored_settings
from calirare.run.updating import update, update_calibrators
from calirare.run.verdict import Verdict
from calirare.run.yaml_files import read_yaml
