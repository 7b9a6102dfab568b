//! Federations: terms, the coordinator, and the calls of a client.

use std::path::PathBuf;
use std::sync::Arc;

use dpsgd_federated::admission;
use dpsgd_federated::wire::{model, update};
use dpsgd_federated::{
    Agreed, ClientId, Coordinator as Fold, Outcome, Rule, ServerOuter, Staleness, Terms as Written,
    Visit as Call,
};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde_json::json;

use crate::errors::{raised, refused};
use crate::settings;

/// What everybody in a federation agrees on, checked.
#[pyclass(frozen, module = "dpsgd._dpsgd")]
pub struct Terms {
    pub agreed: Arc<Agreed>,
}

#[pymethods]
impl Terms {
    /// Reads and checks terms in JSON.
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        let written: Written = serde_json::from_str(text).map_err(refused)?;
        Ok(Self { agreed: Agreed::shared(written).map_err(refused)? })
    }

    /// The terms of a federation whose clients are like one with these settings.
    #[staticmethod]
    #[pyo3(signature = (given, *, name, dimension, clients, rounds, noise_range, max_staleness, rule, staleness_power, outer))]
    #[allow(clippy::too_many_arguments)]
    fn of(
        given: &Bound<'_, PyDict>,
        name: String,
        dimension: u64,
        clients: u64,
        rounds: Option<u64>,
        noise_range: f64,
        max_staleness: u64,
        rule: &str,
        staleness_power: Option<f64>,
        outer: &str,
    ) -> PyResult<Self> {
        if !(1.0..=1e6).contains(&noise_range) {
            return Err(refused(format!("noise_range = {noise_range}: 1 to 1e6")));
        }
        let settings = settings::read(given)?.resolve().map_err(refused)?;
        let bounds = admission::bounds(&settings, noise_range).map_err(refused)?;
        let rule = rule.parse::<Rule>().map_err(refused)?;
        let outer: ServerOuter = serde_json::from_str(outer).map_err(refused)?;
        let written = Written {
            name,
            dimension,
            clients,
            rounds: rounds.unwrap_or(settings.mechanism.rounds()),
            max_staleness,
            step: settings.algorithm.step,
            bounds,
            rule,
            weight: staleness_power.map_or(Staleness::Constant, |power| Staleness::Polynomial { power }),
            outer,
        };
        Ok(Self { agreed: Agreed::shared(written).map_err(refused)? })
    }

    /// The terms in JSON.
    fn json(&self) -> PyResult<String> {
        let terms: &Written = &self.agreed;
        serde_json::to_string(terms).map_err(refused)
    }

    /// The name of the run: the digest of the terms.
    #[getter]
    fn run(&self) -> String {
        self.agreed.run().to_string()
    }

    /// d.
    #[getter]
    fn dimension(&self) -> usize {
        self.agreed.dimension()
    }

    /// The clients are numbered 1 to this.
    #[getter]
    fn clients(&self) -> u64 {
        self.agreed.clients
    }

    /// The most rounds of any client.
    #[getter]
    fn rounds(&self) -> u64 {
        self.agreed.rounds
    }

    /// The frame of an update, with η of the terms.
    fn update<'py>(
        &self,
        py: Python<'py>,
        client: u64,
        round: u64,
        base: u64,
        values: PyReadonlyArray1<'py, f32>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let step = self.agreed.eta(round) as f32;
        let names = (ClientId(client), round, base);
        let frame = update::encode(self.agreed.run(), names, step, values.as_slice()?);
        Ok(PyBytes::new(py, &frame))
    }

    /// The version, the place in the log and the weights of a model's frame.
    fn model<'py>(&self, py: Python<'py>, frame: &[u8]) -> PyResult<(u64, u64, Bound<'py, PyArray1<f32>>)> {
        let model = model::decode(frame, &self.agreed).map_err(refused)?;
        Ok((model.version, model.sequence, model.weights.into_pyarray(py)))
    }
}

/// The server as a fold over the updates it is given.
#[pyclass(module = "dpsgd._dpsgd")]
pub struct Coordinator {
    fold: Fold,
}

#[pymethods]
impl Coordinator {
    /// Before the first update, with the given global model as version 0.
    #[new]
    fn new(terms: &Terms, weights: PyReadonlyArray1<'_, f32>) -> PyResult<Self> {
        let fold = Fold::new(terms.agreed.clone(), weights.as_slice()?.to_vec()).map_err(refused)?;
        Ok(Self { fold })
    }

    /// From what `snapshot` saved.
    #[staticmethod]
    fn restore(terms: &Terms, saved: &[u8]) -> PyResult<Self> {
        Ok(Self { fold: Fold::restore(terms.agreed.clone(), saved).map_err(refused)? })
    }

    /// Everything, to be saved.
    fn snapshot<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.fold.snapshot())
    }

    /// Reads bytes from a sender whom the transport vouches for: why they were not folded, or nothing, round,
    /// staleness and whether the model made a step.
    #[allow(clippy::type_complexity)]
    fn apply(
        &mut self,
        py: Python<'_>,
        sender: u64,
        frame: &[u8],
    ) -> PyResult<(Option<&'static str>, Option<(u64, u64, bool)>)> {
        let fold = &mut self.fold;
        let place = fold.state().sequence + 1;
        match py.detach(|| fold.apply(place, ClientId(sender), frame)).map_err(refused)? {
            Outcome::Accepted { round, staleness, stepped, .. } => {
                Ok((None, Some((round, staleness, stepped))))
            }
            Outcome::Rejected(why) => Ok((Some(why.name()), None)),
            other => Err(refused(format!("entry {place} of the log: {other:?}"))),
        }
    }

    /// The frame of the global model.
    fn model<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.fold.model_frame())
    }

    /// The global model.
    fn weights<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        PyArray1::from_slice(py, &self.fold.state().weights)
    }

    /// The steps that the global model has made.
    #[getter]
    fn version(&self) -> u64 {
        self.fold.state().version
    }

    /// Accepted and rejected updates, by client and reason, and their staleness; JSON.
    fn summary(&self) -> String {
        let state = self.fold.state();
        let rejected = |counts: &std::collections::BTreeMap<dpsgd_federated::Reject, u64>| {
            counts
                .iter()
                .map(|(why, count)| (why.name().to_string(), json!(count)))
                .collect::<serde_json::Map<_, _>>()
        };
        let clients = state.clients.iter().map(|(client, standing)| {
            let said = json!({ "accepted": standing.accepted, "rejected": rejected(&standing.rejected) });
            (client.to_string(), said)
        });
        json!({
            "run": self.fold.terms().run().to_string(),
            "version": state.version,
            "updates_applied": state.accepted(),
            "updates_rejected": rejected(&state.rejected()),
            "clients": clients.collect::<serde_json::Map<_, _>>(),
            "staleness": { "mean": state.mean_staleness(), "p99": state.staleness_quantile(0.99) },
        })
        .to_string()
    }
}

/// One call of a client by a server.
#[pyclass(frozen, module = "dpsgd._dpsgd")]
pub struct Visit {
    pub call: Call,
}

#[pymethods]
impl Visit {
    /// A call with the frame of the global model, to the client whose run is, or will be, in this directory.
    #[new]
    fn new(py: Python<'_>, terms: &Terms, client: u64, frame: &[u8], directory: PathBuf) -> PyResult<Self> {
        let call = Call::new(terms.agreed.clone(), ClientId(client), frame, &directory);
        Ok(Self { call: call.map_err(|error| raised(py, error))? })
    }

    /// Whether the run of this client has ended.
    fn ended(&self, py: Python<'_>) -> PyResult<bool> {
        self.call.ended().map_err(|error| raised(py, error))
    }

    /// The server has read the updates of these rounds.
    fn acknowledged(&self, py: Python<'_>, rounds: Vec<u64>) -> PyResult<()> {
        self.call.acknowledged(&rounds).map_err(|error| raised(py, error))
    }

    /// The updates that the server has not read, by round.
    fn updates<'py>(&self, py: Python<'py>) -> PyResult<Vec<(u64, Bound<'py, PyBytes>)>> {
        let updates = self.call.updates().map_err(|error| raised(py, error))?;
        Ok(updates.into_iter().map(|(round, frame)| (round, PyBytes::new(py, &frame))).collect())
    }
}
