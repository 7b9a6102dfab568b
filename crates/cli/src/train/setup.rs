//! Everything about a run that can be checked, checked before anything is written.

use dpsgd_engine::Network;
use dpsgd_privacy::Adversary;
use dpsgd_train::Plan;

use super::budget::Budget;
use super::facts::Facts;
use super::inputs::{Inputs, releases};
use super::mechanism::{self, Settled};
use super::settings::TrainSettings;
use super::{algorithm, net};
use crate::Failure;
use crate::settings::Run;

/// A run that can start.
pub struct Setup {
    /// Every setting, defaults filled in and σ found: what `config.toml` holds.
    pub settings: TrainSettings,
    /// The data, not yet normalised.
    pub inputs: Inputs,
    /// The short name of the network.
    pub net: String,
    /// The network, checked.
    pub network: Network,
    /// The whole run for the accountant.
    pub run: Run,
    /// The whole run for the trainer.
    pub plan: Plan,
    /// Whose ε is watched.
    pub budget: Budget,
    /// The rounds that were asked for; `--max-epsilon` may end the run before.
    pub planned: u64,
}

impl Setup {
    /// Checks the settings of a run.
    pub fn new(given: &TrainSettings) -> Result<Self, Failure> {
        Self::with(Inputs::load(given)?, given)
    }

    /// The same, for a model that is only measured.
    pub fn to_evaluate(given: &TrainSettings) -> Result<Self, Failure> {
        let mut inputs = Inputs::load(given)?;
        inputs.leave_training_set()?;
        Self::with(inputs, given)
    }

    fn with(mut inputs: Inputs, given: &TrainSettings) -> Result<Self, Failure> {
        let settings = inputs.settle(given)?;
        let settled = mechanism::settled(&settings, inputs.size, &releases(&settings))?;
        // What cannot be accounted for is refused before anything is charged.
        settled.budget.spent(&settled.run.mechanism, settled.run.mechanism.phases()[0].rounds())?;
        let one = inputs.sample(&settings)?;
        let (net, spec) = net::named(given, &one)?;
        let network = net::checked(&spec, &one)?;
        // They can take a minute: not before the settings are known to be good.
        inputs.take_features(&settings)?;
        let Settled { settings, run, budget, planned } = settled;
        let (mut settings, plan) = algorithm::planned(&settings, &run.mechanism)?;
        settings.net = Some(net.clone());
        settings.network = Some(spec);
        Ok(Self { settings, inputs, net, network, run, plan, budget, planned })
    }

    /// The settings as `config.toml`, without what the result does not depend on.
    pub fn config(&self) -> Result<String, Failure> {
        let kept = TrainSettings { threads: None, ..self.settings.clone() };
        let settings = toml::to_string(&kept).map_err(|error| Failure::Machine(error.to_string()))?;
        let against = match self.budget.adversary {
            Adversary::A0 => "A0",
            Adversary::A1 => "A1",
        };
        Ok(format!(
            "# What this run was: `dpsgd train --config` takes it. The budget is against {against}.\n{settings}"
        ))
    }

    /// What a report needs to know.
    pub fn facts(&self) -> Facts {
        Facts {
            data: self.inputs.name.clone(),
            samples: self.run.sizes.0,
            test_samples: self.inputs.split.test.len() as u64,
            public: self.inputs.size.public,
            uncovered: self.inputs.uncovered.clone(),
            net: self.net.clone(),
            parameters: self.network.dimension(),
        }
    }

    /// Samples a round takes, by public sizes.
    pub fn samples_per_round(&self) -> f64 {
        let product = self.settings.groups.unwrap_or(1) as f64 * self.settings.group_size.unwrap_or(1) as f64;
        if self.settings.filter == Some(true) { 0.5 * product } else { product }
    }
}
