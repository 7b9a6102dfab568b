//! From what somebody wrote to a run in which everything is decided, σ calibrated and the budget applied.

#[cfg(test)]
mod tests;

use std::path::Path;

use dpsgd_data::file::Format;
use dpsgd_data::schema::Schema;
use dpsgd_data::{DataError, Declared, Normalisation};
use dpsgd_privacy::Adversary;
use dpsgd_privacy::account::Question;
use dpsgd_privacy::budget::Budget;
use dpsgd_privacy::calibrate::{self, Target};
use dpsgd_privacy::gaussian;
use dpsgd_privacy::mechanism::{Length, Mechanism, Neighbours, NoiseScale, PhaseConfig, RunConfig, Sampling};

use super::algorithm::Algorithm;
use super::names::Normalise;
use super::{
    DataSettings, NetSettings, Population, Preparation, RawSettings, Settings, SettingsError, Source,
    defaults, number, refuse,
};
use crate::inputs::Constants;
use crate::shared_ledger::Place;

impl RawSettings {
    /// Decides everything, for data that are not read: N is the setting `samples`, or that of a known data
    /// set.
    pub fn resolve(&self) -> Result<Settings, SettingsError> {
        let known = match self.source() {
            Source::Known(known) => Some(known.samples()),
            Source::Other(_) => None,
        };
        let public = self.samples.is_some() || known.is_some();
        self.resolve_for(Population { samples: self.samples.or(known), public, measured: false })
    }

    /// Decides everything, for data of the given size.
    ///
    /// # Guarantee
    /// The result is a function of the settings and, where the neighbour relation makes N public, of N. Where
    /// N is private (add-remove, Poisson, allocation), nothing in it depends on N.
    pub fn resolve_for(&self, population: Population) -> Result<Settings, SettingsError> {
        // The question may be about another ε while δ is that of the budget.
        RawSettings { epsilon: None, ..self.clone() }.check_alternatives("in one place")?;
        if let (true, Some(given), Some(found)) = (population.measured, self.samples, population.samples)
            && given != found
        {
            return refuse(format!("samples = {given}: the data has {found}; leave the setting out"));
        }
        let data = self.data_settings()?;
        let delta = self.delta.unwrap_or(defaults::DELTA);
        let question = match self.epsilon {
            Some(epsilon) => Question::delta_at(epsilon)?,
            None => Question::epsilon_at(delta)?,
        };
        // What is cheap to refuse is refused before anything is computed.
        let algorithm = Algorithm::resolve(self)?;
        let (alphas, seed, threads) = (self.alphas()?, self.checked_seed()?, self.checked_threads()?);
        let phases = self.phases();
        let (mut config, divisors) = self.run_config(&phases, population, &data)?;
        if data.private_test.is_some() && config.neighbours == Neighbours::AddRemove {
            return refuse(
                "private-test: only with neighbours by substitution; where samples are added and removed the \
                 size of the test set is private too, and what is measured on it is divided by that",
            );
        }
        let mut mechanism = config.check()?;
        let adversary = self.adversary.unwrap_or_else(|| Adversary::usual_for(&config));
        if let Some(epsilon) = self.calibration_target(&phases)? {
            let found = calibrate::sigma(&config, adversary, Target::Epsilon { epsilon, delta })?;
            for phase in &mut config.phases {
                phase.noise = NoiseScale::Sigma(found.value);
            }
            mechanism = found.mechanism;
        }
        let budget = Budget { adversary, delta };
        let planned = mechanism.rounds();
        if let Some(most) = self.max_epsilon {
            let cut = affordable(&mechanism, budget, most)?;
            if cut != mechanism {
                config = cut.config();
                mechanism = cut;
            }
        }
        let computed = |phase: &RawSettings, sampling: &Sampling| {
            let given = phase.groups.is_some() && (phase.rate.is_some() || phase.rounds_per_epoch.is_some());
            sampling.population().is_none() && !given
        };
        let uses_samples = config.neighbours == Neighbours::AddRemove
            && phases.iter().zip(&config.phases).any(|(raw, phase)| computed(raw, &phase.sampling));
        let (samples, groups) = self.shown(&phases[0], population, &config, &divisors);
        Ok(Settings {
            net: self.net_settings(&data),
            algorithm,
            releases: self.releases().collect(),
            alphas,
            seed,
            threads,
            diagnostics: self.diagnostics.unwrap_or(false),
            ledger: self.ledger.as_deref().map_or(Place::Usual, Place::said),
            max_epsilon: self.max_epsilon,
            data,
            mechanism,
            config,
            divisors,
            uses_samples,
            samples,
            groups,
            planned,
            budget,
            question,
        })
    }

    fn source(&self) -> Source {
        let name = self.data.as_deref().unwrap_or(defaults::DATA);
        name.parse().map_or_else(|_| Source::Other(name.to_string()), Source::Known)
    }

    fn data_settings(&self) -> Result<DataSettings, SettingsError> {
        let source = self.source();
        if let Source::Known(known) = source {
            for (name, given) in [
                ("test", self.test.is_some()),
                ("private-test", self.private_test.is_some()),
                ("schema", self.schema.is_some()),
                ("classes", !self.classes.is_empty()),
                ("image-size", self.image_size.is_some()),
                ("value-range", !self.value_range.is_empty()),
                ("channels-first", self.channels_first.is_some()),
                ("mean, std", !self.mean.is_empty() || !self.std.is_empty()),
            ] {
                if given {
                    return refuse(format!("{name}: only with data of your own; {known} has its own"));
                }
            }
        }
        if self.test.is_some() && self.private_test.is_some() {
            return refuse("test, private-test: give one of them; the test set is public or private");
        }
        let private_test = match (&self.private_test, self.test_mu) {
            (Some(path), mu) => {
                Some((path.clone(), self.release("test-mu", mu.unwrap_or_else(|| self.usual_mu()))?))
            }
            (None, Some(mu)) => {
                return refuse(format!("test-mu = {}: only with --private-test", number(mu)));
            }
            (None, None) => None,
        };
        Ok(DataSettings {
            preparation: self.preparation(&source)?,
            source,
            directory: self.data_dir.clone(),
            test: self.test.clone(),
            private_test,
            class_weights: self.class_weights.clone(),
            schema: self.schema.clone(),
            declared: self.declared()?,
            constants: self.constants()?,
            features: self.features,
            features_cache: self.features_cache.clone(),
            set: self.data_set.clone(),
        })
    }

    /// What is public about arrays and images.
    pub(crate) fn declared(&self) -> Result<Declared, SettingsError> {
        let said = |error: DataError| SettingsError::Refused(error.to_string());
        Ok(Declared {
            classes: Declared::class_names(&self.classes).map_err(said)?,
            size: self.image_size.as_deref().map(str::parse).transpose().map_err(said)?,
            range: match self.value_range[..] {
                [] => None,
                [low, high] => Some([low, high]),
                _ => {
                    return refuse(format!("value-range: {} numbers; give LOW,HIGH", self.value_range.len()));
                }
            },
            channels_first: self.channels_first.unwrap_or(false),
        })
    }

    /// The public constants that were given.
    fn constants(&self) -> Result<Option<Constants>, SettingsError> {
        let (mean, std) = (self.mean.clone(), self.std.clone());
        if mean.len() != std.len() {
            return refuse(format!(
                "mean, std: {} and {} numbers; give one of each for every channel",
                mean.len(),
                std.len()
            ));
        }
        Ok((!mean.is_empty()).then_some(Constants { mean, std }))
    }

    fn preparation(&self, source: &Source) -> Result<Preparation, SettingsError> {
        let published = matches!(source, Source::Known(known) if known.normalisation() != Normalisation::None)
            || !self.mean.is_empty();
        let usual = match self.features {
            None if published => Normalise::Public,
            None if self.has_numbers() => Normalise::Private,
            _ => Normalise::None,
        };
        let wanted = self.normalise.unwrap_or(usual);
        if self.features.is_some() && wanted == Normalise::Public {
            return refuse(
                "normalise: only none or private with --features, which are normalised image by image; the \
                 published constants are those of pixels",
            );
        }
        match (wanted, self.normalise_mu) {
            (Normalise::Private, mu) => {
                let mu = self.release("normalise-mu", mu.unwrap_or_else(|| self.usual_mu()))?;
                Ok(Preparation::Private { mu })
            }
            (_, Some(mu)) => refuse(format!("normalise-mu = {}: only with --normalise private", number(mu))),
            (Normalise::Public, None) if !published => refuse(
                "normalise = public: no constants are published for these data; values already run from 0 to 1 \
                 by their ranges (none); give --mean and --std if they are public, or take private",
            ),
            (Normalise::Public, None) => Ok(Preparation::Public),
            (Normalise::None, None) => Ok(Preparation::Nothing),
        }
    }

    /// The same for a client of a federation: all clients and the server must see the same inputs, so a table is
    /// not normalised by what one client's rows say, unless that is asked for.
    pub fn among_clients(mut self) -> Self {
        if self.is_table() {
            self.normalise.get_or_insert(Normalise::None);
        }
        self
    }

    /// Whether the data are a table: a CSV file with a schema, or Adult.
    pub(super) fn is_table(&self) -> bool {
        let known =
            matches!(self.source(), Source::Known(known) if known.normalisation() == Normalisation::None);
        known || self.schema.is_some()
    }

    /// Whether the data are a table with numbers in it.
    fn has_numbers(&self) -> bool {
        let numbers = |schema: &Schema| schema.columns.iter().any(|column| column.range.is_some());
        self.schema.as_ref().map_or_else(|| self.is_table(), numbers)
    }

    /// µ of a release beside the training, where none is given: never so large that it leaves no room for the
    /// training.
    fn usual_mu(&self) -> f64 {
        let phases = self.phases();
        let delta = self.delta.unwrap_or(defaults::DELTA);
        match self.calibration_target(&phases) {
            Ok(Some(epsilon)) if epsilon > 0.0 && epsilon < 100.0 && delta > 0.0 && delta < 1.0 => {
                let all = gaussian::mu_of(epsilon, delta);
                let most = defaults::RELEASE_SHARE * all
                    / self.differing.unwrap_or(defaults::DIFFERING).max(1) as f64;
                // Three digits, so that it reads well; a little less or more does not matter.
                format!("{most:.2e}").parse().unwrap_or(most).min(defaults::RELEASE_MU)
            }
            _ => defaults::RELEASE_MU,
        }
    }

    /// µ of a release, checked.
    fn release(&self, name: &str, mu: f64) -> Result<f64, SettingsError> {
        let (least, most) = defaults::RELEASE_MU_RANGE;
        if (least..=most).contains(&mu) {
            return Ok(mu);
        }
        refuse(format!(
            "{name} = {}: must be between {} and {} (a smaller one would leave only noise, a larger one hides \
             nothing)",
            number(mu),
            number(least),
            number(most)
        ))
    }

    fn net_settings(&self, data: &DataSettings) -> NetSettings {
        let images = match &data.source {
            Source::Known(known) => known.normalisation() != Normalisation::None,
            Source::Other(name) => {
                data.schema.is_none()
                    && matches!(Format::of(Path::new(name)), Format::Arrays | Format::Images)
            }
        };
        let usual = match data.features {
            Some(_) => defaults::FEATURES_NET,
            None if images => defaults::NET,
            None => defaults::TABLE_NET,
        };
        let spelled = if self.network.is_some() { "network" } else { usual };
        NetSettings {
            name: self.net.clone().unwrap_or_else(|| spelled.to_string()),
            spec: self.network.clone(),
        }
    }

    /// The settings of each phase, everything layered; one phase if none is written.
    fn phases(&self) -> Vec<RawSettings> {
        if self.phase.is_empty() {
            return vec![self.clone()];
        }
        self.phase.iter().map(|phase| phase.over_level(self)).collect()
    }

    fn run_config(
        &self,
        phases: &[RawSettings],
        population: Population,
        data: &DataSettings,
    ) -> Result<(RunConfig, Vec<Option<u64>>), SettingsError> {
        let mut divisors = Vec::new();
        let mut configs = Vec::new();
        // Data sets in which samples are replaced have the same size: then everybody may know it.
        let public = population.public || self.neighbours == Some(Neighbours::Substitute);
        let population = Population { public, ..population };
        for phase in phases {
            let (sampling, divisor) = phase.sampling_of(population)?;
            configs.push(PhaseConfig {
                sampling,
                length: match (phase.rounds, phase.epochs) {
                    (Some(rounds), _) => Length::Rounds(rounds),
                    (None, epochs) => Length::Epochs(epochs.unwrap_or(self.usual_epochs())),
                },
                // Where none is given, it is calibrated.
                noise: phase.noise_scale().unwrap_or(NoiseScale::Sigma(1.0)),
                filtered: phase.filter.unwrap_or(false),
            });
            divisors.push(divisor);
        }
        let differing = self.differing.unwrap_or(defaults::DIFFERING);
        let normalisation = match data.preparation {
            Preparation::Private { mu } => Some(mu),
            Preparation::Nothing | Preparation::Public => None,
        };
        let usual = configs.iter().map(|phase| phase.sampling.usual_neighbours());
        let config = RunConfig {
            neighbours: self.neighbours.unwrap_or_else(|| {
                if usual.clone().all(|usual| usual == Neighbours::AddRemove) {
                    Neighbours::AddRemove
                } else {
                    Neighbours::Substitute
                }
            }),
            phases: configs,
            differing,
            releases: normalisation
                .into_iter()
                .chain(data.private_test.iter().map(|(_, mu)| *mu))
                .chain(self.releases())
                .collect(),
        };
        Ok((config, divisors))
    }

    /// E, where it is not given.
    pub(super) fn usual_epochs(&self) -> u64 {
        if self.is_table() { defaults::TABLE_EPOCHS } else { defaults::EPOCHS }
    }

    fn noise_scale(&self) -> Option<NoiseScale> {
        self.noise_multiplier.map(NoiseScale::Multiplier).or(self.sigma.map(NoiseScale::Sigma))
    }

    /// The ε that σ will be chosen for, if it is.
    pub fn target(&self) -> Option<f64> {
        self.calibration_target(&self.phases()).ok().flatten()
    }

    /// The same run with some noise, for checks that should not wait for the calibration.
    pub(crate) fn uncalibrated(&self) -> Self {
        let mut raw = Self { max_epsilon: None, ..self.clone() };
        if self.target().is_some() {
            (raw.target_epsilon, raw.sigma) = (None, Some(1.0));
        }
        raw
    }

    /// The ε that σ is chosen for; none if every phase has its noise.
    fn calibration_target(&self, phases: &[RawSettings]) -> Result<Option<f64>, SettingsError> {
        let given = phases.iter().filter(|phase| phase.noise_scale().is_some()).count();
        match (given, self.target_epsilon) {
            (0, target) => Ok(Some(target.unwrap_or(defaults::TARGET_EPSILON))),
            (_, Some(_)) => refuse(
                "target-epsilon: the σ that is chosen is the same in every phase, and a [[phase]] gives its \
                 own; give one of the two",
            ),
            (given, None) if given < phases.len() => {
                refuse("sigma: a [[phase]] has none; give it for every phase, or for none to have it chosen")
            }
            _ => Ok(None),
        }
    }

    /// N and m for people: what was given, or what was measured unless it is private.
    fn shown(
        &self,
        first: &RawSettings,
        population: Population,
        config: &RunConfig,
        divisors: &[Option<u64>],
    ) -> (Option<u64>, Option<u64>) {
        if !population.measured {
            return (first.samples, first.groups);
        }
        // Where neighbours differ in their size, N is as private as the rest.
        let shown =
            population.public || config.phases.iter().all(|phase| phase.sampling.population().is_some());
        let groups = config.phases[0].sampling.groups().or(divisors[0]);
        (population.samples.filter(|_| shown), groups)
    }

    fn alphas(&self) -> Result<Vec<f64>, SettingsError> {
        if let Some(alpha) = self.alpha.iter().find(|alpha| !(0.0..=1.0).contains(*alpha)) {
            return refuse(format!("alpha = {alpha}: must be between 0 and 1 (it is a false-alarm rate)"));
        }
        Ok(if self.alpha.is_empty() { defaults::ALPHAS.to_vec() } else { self.alpha.clone() })
    }

    fn checked_seed(&self) -> Result<Option<u64>, SettingsError> {
        match self.seed {
            Some(seed) if i64::try_from(seed).is_err() => {
                refuse(format!("seed = {seed}: at most {} (a TOML file holds no more)", i64::MAX))
            }
            seed => Ok(seed),
        }
    }

    fn checked_threads(&self) -> Result<usize, SettingsError> {
        match self.threads {
            Some(0) => refuse("threads = 0: at least 1"),
            Some(threads) => Ok(threads),
            None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
        }
    }
}

fn affordable(mechanism: &Mechanism, budget: Budget, most: f64) -> Result<Mechanism, SettingsError> {
    if !(most > 0.0 && most.is_finite()) {
        return refuse(format!("max-epsilon = {}: must be a number above 0", number(most)));
    }
    let rounds = budget.affordable(mechanism, most)?;
    if rounds == mechanism.rounds() {
        return Ok(mechanism.clone());
    }
    match mechanism.first_rounds(rounds)? {
        Some(cut) => Ok(cut),
        None => refuse(format!(
            "max-epsilon = {}: not even the first round fits into it; raise it, or --sigma",
            number(most)
        )),
    }
}
