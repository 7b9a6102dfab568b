//! Every decision, written down so that it can be read again.

use dpsgd_privacy::mechanism::{Length, NoiseScale, Sampling};
use serde_json::{Value, json};

use super::algorithm::InnerChoice;
use super::names::Normalise;
use super::{Preparation, RawSettings, Settings, SettingsError, Source, defaults};

impl Settings {
    /// Every decision, written down; resolving it again gives the same run.
    pub fn to_raw(&self) -> RawSettings {
        let mut raw = RawSettings {
            data: Some(match &self.data.source {
                Source::Known(known) => known.name().to_string(),
                Source::Other(name) => name.clone(),
            }),
            data_dir: self.data.directory.clone(),
            test: self.data.test.clone(),
            private_test: self.data.private_test.as_ref().map(|(path, _)| path.clone()),
            test_mu: self.data.private_test.as_ref().map(|(_, mu)| *mu),
            class_weights: self.data.class_weights.clone(),
            schema: self.data.schema.clone(),
            classes: self.data.declared.classes.clone(),
            image_size: self.data.declared.size.map(|size| size.to_string()),
            value_range: self.data.declared.range.map(|range| range.to_vec()).unwrap_or_default(),
            channels_first: self.data.declared.channels_first.then_some(true),
            mean: self.data.constants.as_ref().map(|known| known.mean.clone()).unwrap_or_default(),
            std: self.data.constants.as_ref().map(|known| known.std.clone()).unwrap_or_default(),
            features: self.data.features,
            data_set: self.data.set.clone(),
            net: Some(self.net.name.clone()),
            network: self.net.spec.clone(),
            samples: self.mechanism.phases()[0].sampling().population(),
            neighbours: Some(self.mechanism.neighbours()),
            differing: Some(self.mechanism.differing()),
            release_mu: self.releases.clone(),
            // `max-epsilon` has been applied: written down, it would cut the run again under another question.
            delta: Some(self.budget.delta),
            adversary: Some(self.budget.adversary),
            alpha: if self.alphas == defaults::ALPHAS { Vec::new() } else { self.alphas.clone() },
            seed: self.seed,
            diagnostics: self.diagnostics.then_some(true),
            ..RawSettings::default()
        };
        (raw.normalise, raw.normalise_mu) = match self.data.preparation {
            Preparation::Nothing => (Some(Normalise::None), None),
            Preparation::Public => (Some(Normalise::Public), None),
            Preparation::Private { mu } => (Some(Normalise::Private), Some(mu)),
        };
        self.algorithm.write(&mut raw);
        let mut phases: Vec<RawSettings> = self.raw_phases().collect();
        if phases.len() == 1 {
            raw = phases.remove(0).over_level(&raw);
        } else {
            raw.phase = phases;
        }
        raw
    }

    /// How the run trained, by the names of the settings: clip, step, inner, outer, seed and the like.
    pub fn algorithm_json(&self) -> Value {
        let mut raw = RawSettings { seed: self.seed, ..RawSettings::default() };
        self.algorithm.write(&mut raw);
        let given = |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
        let all = json!(raw).as_object().cloned().unwrap_or_default().into_iter();
        all.filter(|(_, value)| given(value)).map(|(name, value)| (name.replace('-', "_"), value)).collect()
    }

    fn raw_phases(&self) -> impl Iterator<Item = RawSettings> {
        self.config.phases.iter().zip(&self.divisors).map(|(phase, divisor)| {
            let mut raw = RawSettings {
                sampling: Some(phase.sampling.kind()),
                samples: phase.sampling.population(),
                groups: phase.sampling.groups().or(*divisor),
                group_size: Some(phase.sampling.group_size()),
                filter: phase.filtered.then_some(true),
                ..RawSettings::default()
            };
            match phase.sampling {
                Sampling::Poisson { rate } => raw.rate = Some(rate),
                Sampling::Allocate { rounds } | Sampling::AllocateCells { rounds, .. } => {
                    raw.rounds_per_epoch = Some(rounds);
                }
                Sampling::Subsample { .. } | Sampling::Shuffle { .. } => {}
            }
            match phase.length {
                Length::Epochs(epochs) => raw.epochs = Some(epochs),
                Length::Rounds(rounds) => raw.rounds = Some(rounds),
            }
            match phase.noise {
                NoiseScale::Sigma(sigma) => raw.sigma = Some(sigma),
                NoiseScale::Multiplier(z) => raw.noise_multiplier = Some(z),
            }
            raw
        })
    }

    /// The text of `config.toml`: every decision but the threads, on which the result does not depend.
    pub fn config_text(&self) -> Result<String, SettingsError> {
        self.algorithm.check_written()?;
        let settings =
            toml::to_string(&self.to_raw()).map_err(|error| SettingsError::Toml(error.to_string()))?;
        let mut text = format!(
            "# What this run was: `dpsgd train --config` takes it. The budget is against {}.\n",
            self.budget.adversary.name()
        );
        if let InnerChoice::Own(Some(algorithm)) = &self.algorithm.inner {
            // Part of the text that the ledger binds, so that another algorithm cannot continue the run.
            let said = format!("# Inside a group: {}: {}", algorithm.name(), algorithm.describe());
            text.push_str(&said.split_whitespace().collect::<Vec<_>>().join(" "));
            text.push('\n');
        }
        Ok(text + &settings)
    }

    /// The command that starts such a run: flags, where they can say everything.
    pub fn command(&self) -> Result<String, SettingsError> {
        let raw = RawSettings { threads: None, samples: None, ..self.to_raw() };
        let named = raw.schema.is_none()
            && raw.phase.is_empty()
            && crate::net::NAMES.contains(&self.net.name.as_str());
        if !named {
            return Ok("dpsgd train --config config.toml".to_string());
        }
        let flags = raw.to_flags(|_| true)?;
        Ok(format!("dpsgd train{flags}"))
    }
}
