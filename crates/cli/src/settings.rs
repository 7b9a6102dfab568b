//! The settings of a run, from flags and from a TOML file: the same names, the same units.
//!
//! A flag wins over a `[[phase]]` of the file, a phase over the top level of the file, and that over
//! the default, which is the paper's own setting. Of two settings that say the same thing in two ways
//! (epochs and rounds, sigma and noise-multiplier, delta and epsilon, groups and rate) the one from the
//! stronger place wins; both in one place are refused.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dpsgd_privacy::Adversary;
use dpsgd_privacy::mechanism::{Length, Mechanism, Neighbours, Noise, PhaseConfig, RunConfig, Sampling};
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::file::read;

/// The settings of a run and the question about it. In a file, also those of one phase.
#[derive(Args, Clone, Debug, Default, Deserialize, PartialEq)]
#[command(next_help_heading = "The run (flags win over --config)")]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// N, the size of the data set [default: 60000]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub samples: Option<u64>,
    /// m, groups a round [default: 64]
    #[arg(long, value_name = "m", allow_hyphen_values = true)]
    pub groups: Option<u64>,
    /// s, samples a group: 1 is individual clipping [default: 1]
    #[arg(long, value_name = "s", allow_hyphen_values = true)]
    pub group_size: Option<u64>,
    /// E, epochs of ⌊N/(ms)⌋ rounds [default: 100]
    #[arg(long, value_name = "E", allow_hyphen_values = true)]
    pub epochs: Option<u64>,
    /// T, rounds, instead of --epochs
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub rounds: Option<u64>,
    /// σ, noise N(0, (2Cσ)²) on every coordinate [default: 2]
    #[arg(long, value_name = "σ", allow_hyphen_values = true)]
    pub sigma: Option<f64>,
    /// z = 2σ, noise N(0, (Cz)²), instead of --sigma
    #[arg(long, value_name = "z", allow_hyphen_values = true)]
    pub noise_multiplier: Option<f64>,
    /// How a round draws its samples [default: subsample]
    #[arg(long, value_enum)]
    pub sampling: Option<SamplingName>,
    /// p, the rate of Poisson sampling; without it p = groups/samples
    #[arg(long, value_name = "p", allow_hyphen_values = true)]
    pub rate: Option<f64>,
    /// Keep every group with probability ½ only (probabilistic filtering)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub filter: Option<bool>,
    /// Which data sets are neighbours [default: substitute; add-remove for poisson]
    #[arg(long, value_enum)]
    pub neighbours: Option<NeighboursName>,
    /// g, the number of samples in which neighbours differ [default: 1]
    #[arg(long, value_name = "g", allow_hyphen_values = true)]
    pub differing: Option<u64>,
    /// µ of a further Gaussian release, composed in; can be repeated
    #[arg(long, value_name = "µ", allow_hyphen_values = true, value_delimiter = ',')]
    pub release_mu: Vec<f64>,
    /// δ at which ε is asked for [default: 1e-5]
    #[arg(long, value_name = "δ", allow_hyphen_values = true, help_heading = "The question")]
    pub delta: Option<f64>,
    /// ε at which δ is asked for, instead of --delta
    #[arg(long, value_name = "ε", allow_hyphen_values = true, help_heading = "The question")]
    pub epsilon: Option<f64>,
    /// False-alarm rates of the attacks to report [default: 0.01,0.05,0.5]
    #[arg(
        long,
        value_name = "α,…",
        allow_hyphen_values = true,
        value_delimiter = ',',
        help_heading = "The question"
    )]
    pub alpha: Vec<f64>,
    /// Stretches of rounds with settings of their own.
    #[arg(skip)]
    phase: Vec<Settings>,
    /// Further Gaussian releases.
    #[arg(skip)]
    release: Vec<Release>,
}

/// A further Gaussian release, as a table of its own.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Release {
    mu: f64,
}

/// `--sampling`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum SamplingName {
    /// Every round draws a fresh uniform subset
    Subsample,
    /// Every epoch is a permutation cut into rounds
    Shuffle,
    /// Every round keeps each sample with probability p
    Poisson,
}

/// `--neighbours`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum NeighboursName {
    /// Up to g samples are replaced by others
    Substitute,
    /// Up to g samples are added or removed (poisson only)
    AddRemove,
}

/// `--adversary`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
pub enum AdversaryName {
    /// Sees the updates only
    #[value(name = "A0")]
    #[serde(alias = "a0")]
    A0,
    /// Knows which samples every round drew as well
    #[value(name = "A1")]
    #[serde(alias = "a1")]
    A1,
}

/// The adversary of a target: the one that is named, or the weaker one where a theorem covers it. For
/// shuffling nothing better than A₁ is proved.
pub fn against(named: Option<AdversaryName>, config: &RunConfig) -> Adversary {
    let shuffled = config.phases.iter().any(|phase| matches!(phase.sampling, Sampling::Shuffle { .. }));
    match named {
        Some(AdversaryName::A0) => Adversary::A0,
        Some(AdversaryName::A1) => Adversary::A1,
        None if shuffled => Adversary::A1,
        None => Adversary::A0,
    }
}

/// What is asked about a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Question {
    /// ε at this δ.
    Epsilon {
        /// δ.
        delta: f64,
    },
    /// δ at this ε.
    Delta {
        /// ε.
        epsilon: f64,
    },
}

/// A checked run with the question about it.
#[derive(Clone, Debug)]
pub struct Run {
    /// The run as written, with its lengths in epochs where they were.
    pub config: RunConfig,
    /// The run, checked.
    pub mechanism: Mechanism,
    /// N and m of the first phase where they were given, which a Poisson rate does not tell.
    pub sizes: (Option<u64>, Option<u64>),
    /// ε or δ.
    pub question: Question,
    /// The false-alarm rates to report.
    pub alphas: Vec<f64>,
}

/// The default of `--delta`.
pub const DELTA: f64 = 1e-5;

/// The run that flags and an optional file describe.
pub fn resolve(flags: &Settings, path: Option<&PathBuf>) -> Result<Run, Failure> {
    let file: Settings = path.map(|path| read(path)).transpose()?.unwrap_or_default();
    flags.check_alternatives("on the command line")?;
    file.check_alternatives("at the top level of the file")?;
    let whole = flags.over(&file);
    let default = [Settings::default()];
    let phases = if file.phase.is_empty() { &default[..] } else { &file.phase[..] };
    let mut layered = Vec::new();
    for phase in phases {
        phase.check_alternatives("in a [[phase]]")?;
        phase.check_phase()?;
        layered.push(flags.over(&phase.over(&file)));
    }
    let config = RunConfig {
        phases: layered.iter().map(Settings::phase_config).collect::<Result<_, _>>()?,
        neighbours: match whole.neighbours {
            Some(NeighboursName::Substitute) => Neighbours::Substitute,
            Some(NeighboursName::AddRemove) => Neighbours::AddRemove,
            None if layered.iter().all(Settings::is_poisson) => Neighbours::AddRemove,
            None => Neighbours::Substitute,
        },
        differing: whole.differing.unwrap_or(1),
        releases: whole.releases(),
    };
    Ok(Run {
        mechanism: config.check()?,
        config,
        sizes: (layered[0].samples, layered[0].groups),
        question: whole.question()?,
        alphas: whole.alphas()?,
    })
}

impl Settings {
    fn check_alternatives(&self, place: &str) -> Result<(), Failure> {
        let pairs = [
            ("epochs", "rounds", self.epochs.is_some() && self.rounds.is_some()),
            ("sigma", "noise-multiplier", self.sigma.is_some() && self.noise_multiplier.is_some()),
            ("delta", "epsilon", self.delta.is_some() && self.epsilon.is_some()),
            ("rate", "groups", self.rate.is_some() && self.groups.is_some()),
            ("release", "release-mu", !self.release.is_empty() && !self.release_mu.is_empty()),
        ];
        match pairs.into_iter().find(|pair| pair.2) {
            Some((one, other, _)) => {
                Err(Failure::Input(format!("{one} and {other} are both given {place}: give one of the two")))
            }
            None => Ok(()),
        }
    }

    /// What belongs to the whole run cannot change during it.
    fn check_phase(&self) -> Result<(), Failure> {
        let whole = [
            ("neighbours", self.neighbours.is_some()),
            ("differing", self.differing.is_some()),
            ("release-mu", !self.release_mu.is_empty()),
            ("release", !self.release.is_empty()),
            ("delta", self.delta.is_some()),
            ("epsilon", self.epsilon.is_some()),
            ("alpha", !self.alpha.is_empty()),
            ("phase", !self.phase.is_empty()),
        ];
        match whole.into_iter().find(|key| key.1) {
            Some((name, _)) => Err(Failure::Input(format!(
                "{name} in a [[phase]]: it belongs to the whole run; put it at the top level of the file"
            ))),
            None => Ok(()),
        }
    }

    /// These settings where they are given and `below` elsewhere, a pair of alternatives as one.
    fn over(&self, below: &Self) -> Self {
        fn pair<A: Copy, B: Copy>(
            above: (Option<A>, Option<B>),
            below: (Option<A>, Option<B>),
        ) -> (Option<A>, Option<B>) {
            if above.0.is_some() || above.1.is_some() { above } else { below }
        }
        let list = |above: &Vec<f64>, below: &Vec<f64>| if above.is_empty() { below } else { above }.clone();
        let (epochs, rounds) = pair((self.epochs, self.rounds), (below.epochs, below.rounds));
        let (sigma, noise_multiplier) =
            pair((self.sigma, self.noise_multiplier), (below.sigma, below.noise_multiplier));
        let (delta, epsilon) = pair((self.delta, self.epsilon), (below.delta, below.epsilon));
        let (rate, groups) = pair((self.rate, self.groups), (below.rate, below.groups));
        Self {
            samples: self.samples.or(below.samples),
            groups,
            group_size: self.group_size.or(below.group_size),
            epochs,
            rounds,
            sigma,
            noise_multiplier,
            sampling: self.sampling.or(below.sampling),
            rate,
            filter: self.filter.or(below.filter),
            neighbours: self.neighbours.or(below.neighbours),
            differing: self.differing.or(below.differing),
            release: if self.release_mu.is_empty() { below.release.clone() } else { Vec::new() },
            release_mu: list(&self.release_mu, &below.release_mu),
            delta,
            epsilon,
            alpha: list(&self.alpha, &below.alpha),
            phase: Vec::new(),
        }
    }

    fn is_poisson(&self) -> bool {
        self.sampling == Some(SamplingName::Poisson)
    }

    fn phase_config(&self) -> Result<PhaseConfig, Failure> {
        let samples = self.samples.unwrap_or(60_000);
        let groups = self.groups.unwrap_or(64);
        let group_size = self.group_size.unwrap_or(1);
        let sampling = match self.sampling.unwrap_or(SamplingName::Subsample) {
            SamplingName::Poisson if group_size > 1 => {
                return Err(Failure::Input(format!(
                    "group-size = {group_size}: 1 with poisson sampling (removing one sample changes the \
                     content of its group, which is a substitution; no theorem here covers that)"
                )));
            }
            SamplingName::Poisson => {
                Sampling::Poisson { rate: self.rate.unwrap_or(groups as f64 / samples as f64) }
            }
            other => {
                if let Some(rate) = self.rate {
                    return Err(Failure::Input(format!(
                        "rate = {rate}: only with --sampling poisson (the other samplers take groups and \
                         group-size of samples)"
                    )));
                }
                match other {
                    SamplingName::Shuffle => Sampling::Shuffle { samples, groups, group_size },
                    _ => Sampling::Subsample { samples, groups, group_size },
                }
            }
        };
        Ok(PhaseConfig {
            sampling,
            length: match (self.rounds, self.epochs) {
                (Some(rounds), _) => Length::Rounds(rounds),
                (None, epochs) => Length::Epochs(epochs.unwrap_or(100)),
            },
            noise: match (self.noise_multiplier, self.sigma) {
                (Some(z), _) => Noise::Multiplier(z),
                (None, sigma) => Noise::Sigma(sigma.unwrap_or(2.0)),
            },
            filtered: self.filter.unwrap_or(false),
        })
    }

    fn releases(&self) -> Vec<f64> {
        self.release_mu.iter().copied().chain(self.release.iter().map(|release| release.mu)).collect()
    }

    fn question(&self) -> Result<Question, Failure> {
        match (self.delta, self.epsilon) {
            (_, Some(epsilon)) if epsilon >= 0.0 && epsilon.is_finite() => Ok(Question::Delta { epsilon }),
            (_, Some(epsilon)) => {
                Err(Failure::Input(format!("epsilon = {epsilon}: must be a number of at least 0")))
            }
            (delta, None) => match delta.unwrap_or(DELTA) {
                delta if delta > 0.0 && delta < 1.0 => Ok(Question::Epsilon { delta }),
                delta => Err(Failure::Input(format!("delta = {delta}: must be above 0 and below 1"))),
            },
        }
    }

    fn alphas(&self) -> Result<Vec<f64>, Failure> {
        if let Some(alpha) = self.alpha.iter().find(|alpha| !(0.0..=1.0).contains(*alpha)) {
            return Err(Failure::Input(format!(
                "alpha = {alpha}: must be between 0 and 1 (it is a false-alarm rate)"
            )));
        }
        Ok(if self.alpha.is_empty() { vec![0.01, 0.05, 0.5] } else { self.alpha.clone() })
    }

    /// These settings as flags, without those named in `leave`.
    pub fn to_flags(&self, leave: &[&str]) -> String {
        self.flags(|name| !leave.contains(&name))
    }

    /// Those of the named settings that are given, as flags.
    pub fn given(&self, names: &[&str]) -> String {
        self.flags(|name| names.contains(&name))
    }

    fn flags(&self, wanted: impl Fn(&str) -> bool) -> String {
        let count = |value: Option<u64>| value.map(|value| value.to_string());
        let list = |values: &[f64]| {
            let written: Vec<String> = values.iter().map(|value| number(*value)).collect();
            (!values.is_empty()).then(|| written.join(","))
        };
        let named =
            |value: Option<clap::builder::PossibleValue>| value.map(|value| value.get_name().to_string());
        let flags = [
            ("samples", count(self.samples)),
            ("groups", count(self.groups)),
            ("group-size", count(self.group_size)),
            ("epochs", count(self.epochs)),
            ("rounds", count(self.rounds)),
            ("sigma", self.sigma.map(number)),
            ("noise-multiplier", self.noise_multiplier.map(number)),
            ("sampling", named(self.sampling.and_then(|name| name.to_possible_value()))),
            ("rate", self.rate.map(number)),
            ("filter", self.filter.map(|value| value.to_string())),
            ("neighbours", named(self.neighbours.and_then(|name| name.to_possible_value()))),
            ("differing", count(self.differing)),
            ("release-mu", list(&self.release_mu)),
            ("delta", self.delta.map(number)),
            ("alpha", list(&self.alpha)),
        ];
        let mut text = String::new();
        for (name, value) in flags {
            if let (Some(value), true) = (value, wanted(name)) {
                // `--filter true` would take the value for an argument of its own.
                let between = if name == "filter" { '=' } else { ' ' };
                text.push_str(&format!(" --{name}{between}{value}"));
            }
        }
        text
    }
}

/// A number as a user would write it, and exactly the same number.
pub fn number(value: f64) -> String {
    let (plain, scientific) = (format!("{value}"), format!("{value:e}"));
    if plain.len() > scientific.len() { scientific } else { plain }
}
