"""The native engine with scikit-learn's manners."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dpsgd.mechanism import Mechanism
from dpsgd.native import Trained, UncoveredWarning, train


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share. Parameters are those of :func:`dpsgd.train`."""

    def __init__(
        self,
        net: Any = "mlp",
        *,
        mechanism: Mechanism | None = None,
        epsilon: float = 3.0,
        delta: float = 1e-5,
        groups: int | None = None,
        epochs: int = 30,
        clip: float = 1.0,
        clip_rule: str | None = None,
        lr: float = 0.5,
        lr_rule: str | None = None,
        outer: str = "momentum",
        momentum: float | None = None,
        weight_decay: float | None = None,
        average: str | None = None,
        classes: Any = None,
        ranges: Any = None,
        normalise: str | None = None,
        directory: Any = None,
        data: str = "arrays",
        ledger: Any = None,
        random_state: int | None = None,
        threads: int | None = None,
    ) -> None:
        self.net = net
        self.mechanism = mechanism
        self.epsilon = epsilon
        self.delta = delta
        self.groups = groups
        self.epochs = epochs
        self.clip = clip
        self.clip_rule = clip_rule
        self.lr = lr
        self.lr_rule = lr_rule
        self.outer = outer
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.average = average
        self.classes = classes
        self.ranges = ranges
        self.normalise = normalise
        self.directory = directory
        self.data = data
        self.ledger = ledger
        self.random_state = random_state
        self.threads = threads

    def _train(self, x: NDArray[np.float32], y: NDArray[Any], **more: Any) -> Trained:
        seed = self.random_state
        if seed is not None and not isinstance(seed, (int, np.integer)):
            seed = int(seed.randint(2**31))
        return train(
            x, y, net=self.net, mechanism=self.mechanism, epsilon=self.epsilon, delta=self.delta, groups=self.groups,
            epochs=self.epochs, clip=self.clip, clip_rule=self.clip_rule, lr=self.lr, lr_rule=self.lr_rule,
            outer=self.outer, momentum=self.momentum, weight_decay=self.weight_decay,  # type: ignore[arg-type]
            average=self.average, ranges=self.ranges, normalise=self.normalise,  # type: ignore[arg-type]
            directory=self.directory, data=self.data, ledger=self.ledger, seed=seed, threads=self.threads, **more,
        )

    def _remember(self, run: Trained) -> None:
        self.run_ = run
        self.epsilon_ = run.epsilon
        self.statement_ = run.statement

    def _checked(self, x: ArrayLike) -> NDArray[np.float32]:
        check_is_fitted(self)
        checked: NDArray[np.float32] = validate_data(self, x, reset=False, dtype=np.float32)
        return checked

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Noise: the same data give another model unless random_state says otherwise.
        tags.non_deterministic = self.random_state is None
        return tags


class DPClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """A classifier trained with differential privacy; ``clone``, ``Pipeline`` and grid search work with it.

    Every ``fit`` spends its own ε on the data it is given: a grid search of ten fits spends ten times.

    >>> import numpy as np
    >>> from dpsgd import DPClassifier
    >>> draw = np.random.default_rng(1)
    >>> x = draw.normal(size=(2000, 5)); y = np.where(x[:, 0] > 0, "yes", "no")
    >>> model = DPClassifier("logistic", classes=["no", "yes"], epsilon=3, random_state=1).fit(x, y)
    >>> bool(model.score(x, y) > 0.8), bool(model.epsilon_ <= 3)
    (True, True)

    ``random_state`` makes a fit reproducible, and **not private**. ``classes`` must be given for the guarantee to
    cover them.
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> DPClassifier:
        """Trains on private samples."""
        x, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        found = np.unique(y) if self.classes is None else np.asarray(list(self.classes))
        if len(found) < 2:
            raise ValueError(f"y: has {len(found)} class; a classifier needs two or more classes")
        with warnings.catch_warnings():
            # Said once more by the statement; fit is called many times by grid searches.
            warnings.simplefilter("once", UncoveredWarning)
            self._remember(self._train(x, np.asarray(y), classes=self.classes))
        self.classes_ = found
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float32]:
        """Class probabilities, in the order of ``classes_``."""
        checked = self._checked(X)
        return self.run_.predict_proba(checked)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable classes."""
        checked = self._checked(X)
        return self.run_.predict(checked)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The mixin has just made them; tiny data give a poor model under noise.
        tags.classifier_tags.poor_score = True
        return tags



class DPRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """A regressor trained with differential privacy (squared loss); see :class:`DPClassifier`."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> DPRegressor:
        """Trains on private samples."""
        x, y = validate_data(self, X, y, dtype=np.float32, y_numeric=True)
        self._remember(self._train(x, np.asarray(y), task="regression"))
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The predicted values."""
        checked = self._checked(X)
        return self.run_.predict(checked)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The mixin has just made them; tiny data give a poor model under noise.
        tags.regressor_tags.poor_score = True
        return tags

