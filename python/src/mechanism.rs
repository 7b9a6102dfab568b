//! A mechanism and the questions about it.

use std::sync::{Mutex, OnceLock};

use dpsgd::privacy::account::{Account, Question};
use dpsgd::privacy::calibrate::{self, Target};
use dpsgd::privacy::conversions::Renyi;
use dpsgd::privacy::{Adversary, Curve, Interval, PrivacyError, adversary};
use dpsgd::report::{Sizes, json, statement};
use dpsgd::{RawSettings, Settings};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::curve::Envelope;
use crate::errors::refused;
use crate::settings;

const NO_NOISE: &str = "sigma: no noise is given; give sigma or noise_multiplier, or choose the smallest with \
    calibrate(epsilon=…, delta=…)";

type Ends = (f64, f64);

fn ends(interval: Interval) -> Ends {
    (interval.lower, interval.upper)
}

/// A run, checked; with its noise, or without as long as only `calibrate` is called.
#[pyclass(frozen, module = "dpsgd._dpsgd")]
pub struct Mechanism {
    settings: Settings,
    noise: bool,
    curves: [OnceLock<Result<Box<dyn Curve>, PrivacyError>>; 2],
    envelopes: [Mutex<Option<Envelope>>; 2],
}

impl Mechanism {
    fn of(raw: &RawSettings) -> PyResult<Self> {
        let noise = settings::has_noise(raw);
        // Everything but the noise is checked, and nothing is calibrated unasked.
        let checked =
            if noise { raw.resolve() } else { RawSettings { sigma: Some(1.0), ..raw.clone() }.resolve() };
        Ok(Self {
            settings: checked.map_err(refused)?,
            noise,
            curves: [const { OnceLock::new() }; 2],
            envelopes: [const { Mutex::new(None) }; 2],
        })
    }

    fn needs_noise(&self) -> PyResult<()> {
        if self.noise { Ok(()) } else { Err(refused(NO_NOISE)) }
    }

    fn adversary(&self, given: Option<&str>) -> PyResult<Adversary> {
        match given {
            Some(name) => name.parse().map_err(refused),
            None => Ok(Adversary::usual(&self.settings.mechanism)),
        }
    }

    fn curve(&self, against: Adversary) -> PyResult<&dyn Curve> {
        self.needs_noise()?;
        let known =
            self.curves[against as usize].get_or_init(|| adversary::curve(&self.settings.mechanism, against));
        known.as_deref().map_err(refused)
    }

    fn account(&self, question: Question, alphas: &[f64]) -> PyResult<Account> {
        self.needs_noise()?;
        Account::of(&self.settings.mechanism, question, alphas).map_err(refused)
    }

    fn sizes(&self) -> Sizes {
        Sizes { samples: self.settings.samples, groups: self.settings.groups }
    }
}

fn question(delta: Option<f64>, epsilon: Option<f64>) -> PyResult<Question> {
    match (delta, epsilon) {
        (Some(_), Some(_)) => {
            return Err(refused("delta and epsilon are both given: give one of them"));
        }
        (None, Some(epsilon)) => Question::delta_at(epsilon),
        (delta, None) => Question::epsilon_at(delta.unwrap_or(dpsgd::settings::defaults::DELTA)),
    }
    .map_err(refused)
}

#[pymethods]
impl Mechanism {
    #[new]
    fn new(settings: &Bound<'_, PyDict>) -> PyResult<Self> {
        Self::of(&settings::read(settings)?)
    }

    /// The certified interval of ε.
    fn epsilon(&self, py: Python<'_>, delta: f64, adversary: Option<&str>) -> PyResult<Ends> {
        let against = self.adversary(adversary)?;
        py.detach(|| self.curve(against)?.epsilon(delta).map(ends).map_err(refused))
    }

    /// The certified interval of δ.
    fn delta(&self, py: Python<'_>, epsilon: f64, adversary: Option<&str>) -> PyResult<Ends> {
        let against = self.adversary(adversary)?;
        // The check of the question: the curve itself takes only what it can answer.
        question(None, Some(epsilon))?;
        py.detach(|| self.curve(against)?.delta(epsilon).map(ends).map_err(refused))
    }

    /// The certified interval of f(α).
    fn beta(&self, py: Python<'_>, alpha: f64, adversary: Option<&str>) -> PyResult<Ends> {
        let against = self.adversary(adversary)?;
        py.detach(|| self.curve(against)?.beta(alpha).map(ends).map_err(refused))
    }

    /// The certified intervals of f at many α, from the supporting lines of the curve.
    fn betas(
        &self,
        py: Python<'_>,
        alphas: Vec<f64>,
        adversary: Option<&str>,
    ) -> PyResult<(Vec<f64>, Vec<f64>)> {
        let against = self.adversary(adversary)?;
        py.detach(|| {
            let curve = self.curve(against)?;
            let mut known = self.envelopes[against as usize].lock().unwrap_or_else(|e| e.into_inner());
            if known.is_none() {
                *known = Some(Envelope::of(curve).map_err(refused)?);
            }
            match known.as_mut() {
                Some(envelope) => envelope.betas(curve, &alphas).map_err(refused),
                None => Ok((Vec::new(), Vec::new())),
            }
        })
    }

    /// The certified interval of µ, and the smallest error rate it covers.
    fn mu(&self, py: Python<'_>, adversary: Option<&str>) -> PyResult<(f64, f64, f64)> {
        let against = self.adversary(adversary)?;
        let (mu, smallest) = py.detach(|| self.curve(against)?.mu_on_default_range().map_err(refused))?;
        Ok((mu.lower, mu.upper, smallest))
    }

    /// The certified interval of τ of (ω, τ)-RDP.
    fn renyi(&self, py: Python<'_>, order: f64, adversary: Option<&str>) -> PyResult<Ends> {
        self.needs_noise()?;
        let against = self.adversary(adversary)?;
        py.detach(|| {
            let renyi = Renyi::of(&self.settings.mechanism, against).map_err(refused)?;
            renyi.divergence(order).map(ends).map_err(refused)
        })
    }

    /// What `solve` must be to meet a target: its value.
    #[pyo3(signature = (solve, adversary, epsilon=None, delta=None, mu=None))]
    fn solve<'py>(
        &self,
        py: Python<'py>,
        solve: &str,
        adversary: Option<&str>,
        epsilon: Option<f64>,
        delta: Option<f64>,
        mu: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let against = self.adversary(adversary)?;
        let target = match (epsilon, mu) {
            (Some(epsilon), None) => {
                Target::Epsilon { epsilon, delta: delta.unwrap_or(dpsgd::settings::defaults::DELTA) }
            }
            (None, Some(mu)) => Target::Mu(mu),
            _ => return Err(refused("epsilon, mu: give one of them as the target")),
        };
        let config = self.settings.run_config();
        if solve != "sigma" {
            self.needs_noise()?;
        }
        let found = py.detach(|| match solve {
            "sigma" => calibrate::sigma(config, against, target).map(|found| (found.value, 0)),
            "epochs" => calibrate::epochs(config, against, target).map(|found| (0.0, found.value)),
            "groups" => calibrate::groups(config, against, target).map(|found| (0.0, found.value)),
            other => Err(PrivacyError::Unsupported {
                what: format!("solve = {other}"),
                why: "must be sigma, epochs or groups".into(),
            }),
        });
        let (sigma, whole) = found.map_err(refused)?;
        Ok(match solve {
            "sigma" => sigma.into_pyobject(py)?.into_any(),
            _ => whole.into_pyobject(py)?.into_any(),
        })
    }

    /// What the run leaks, for people.
    #[pyo3(signature = (delta=None, epsilon=None, alphas=None))]
    fn statement(
        &self,
        py: Python<'_>,
        delta: Option<f64>,
        epsilon: Option<f64>,
        alphas: Option<Vec<f64>>,
    ) -> PyResult<String> {
        let question = question(delta, epsilon)?;
        let alphas = alphas.as_deref().unwrap_or(&self.settings.alphas);
        py.detach(|| Ok(statement::account(&self.account(question, alphas)?, self.sizes())))
    }

    /// The same as the JSON of `dpsgd account --json`.
    #[pyo3(signature = (delta=None, epsilon=None, alphas=None))]
    fn json(
        &self,
        py: Python<'_>,
        delta: Option<f64>,
        epsilon: Option<f64>,
        alphas: Option<Vec<f64>>,
    ) -> PyResult<String> {
        let question = question(delta, epsilon)?;
        let alphas = alphas.as_deref().unwrap_or(&self.settings.alphas);
        py.detach(|| {
            let account = self.account(question, alphas)?;
            Ok(json::line(&json::account(&account, self.sizes(), alphas)))
        })
    }

    /// The run, one idea a line.
    fn described(&self) -> String {
        statement::described(&self.settings.mechanism, self.sizes())
    }

    /// T.
    #[getter]
    fn rounds(&self) -> u64 {
        self.settings.mechanism.rounds()
    }

    /// σ of every phase, where it is known.
    #[getter]
    fn sigmas(&self) -> Option<Vec<f64>> {
        self.noise.then(|| self.settings.mechanism.phases().iter().map(|phase| phase.sigma()).collect())
    }

    /// The adversary that is meant when none is named.
    #[getter]
    fn usual_adversary(&self) -> &'static str {
        Adversary::usual(&self.settings.mechanism).name()
    }

    /// "substitute" or "add-remove".
    #[getter]
    fn neighbours(&self) -> String {
        self.settings.mechanism.neighbours().to_string()
    }
}
