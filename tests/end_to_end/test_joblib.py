"""scikit-learn runs unchanged: what joblib hands out runs on the swarm."""

from __future__ import annotations

import os

import numpy as np
import pytest

import mycel

from .swarm import Swarm

joblib = pytest.importorskip("joblib", reason="joblib is not installed")


def test_a_grid_search_has_the_local_result(swarm: Swarm) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from sklearn.datasets import make_classification
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    features, labels = make_classification(n_samples=200, n_features=8, random_state=7)
    grid = {"C": [0.01, 0.1, 1.0, 10.0]}
    local = GridSearchCV(LogisticRegression(), grid, cv=3).fit(features, labels)
    # Of the workers' eight cores two calls at once: each process imports scikit-learn.
    with mycel.joblib_backend(swarm.client, cores=4):
        swarms = GridSearchCV(LogisticRegression(), grid, cv=3, n_jobs=-1).fit(features, labels)
    assert swarms.best_params_ == local.best_params_
    for name in ("mean_test_score", "std_test_score", "rank_test_score"):
        assert np.array_equal(swarms.cv_results_[name], local.cv_results_[name])
    assert np.array_equal(swarms.best_estimator_.coef_, local.best_estimator_.coef_)


def test_calls_and_failures(swarm: Swarm) -> None:
    with mycel.joblib_backend(swarm.client):
        pids = joblib.Parallel()(joblib.delayed(os.getpid)() for _ in range(20))
        assert os.getpid() not in pids
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()(joblib.delayed(divmod)(1, n) for n in range(3))
