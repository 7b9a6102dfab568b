//! The settings of a training run, from flags and from a TOML file: the same names, the same units.
//!
//! A flag wins over the file, the file over the default. Of two settings that say the same thing in
//! two ways (epochs and rounds; sigma, noise-multiplier and target-epsilon) the one from the stronger
//! place wins; both in one place are refused. The number of samples is not a setting: it is that of
//! the data.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use dpsgd_data::schema::Schema;
use dpsgd_engine::spec::NetworkSpec;
use dpsgd_train::NoiseKind;
use serde::{Deserialize, Serialize};

use super::{defaults, net};
use crate::Failure;
use crate::file::read;
use crate::settings::{AdversaryName, NeighboursName, SamplingName, number};

/// The settings of a training run.
#[derive(Args, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[command(next_help_heading = "The data and the network")]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TrainSettings {
    /// mnist, fashion-mnist, cifar10, adult or a CSV file with a header [default: mnist]
    #[arg(long, value_name = "NAME|FILE.csv")]
    pub data: Option<String>,
    /// Where the data sets are [default: $DPSGD_DATA, then data here, in a directory above or in the source checkout]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// The public test set of a CSV file: another file with the same columns
    #[arg(long, value_name = "FILE.csv")]
    pub test: Option<PathBuf>,
    /// How samples are brought to mean 0 and variance 1 [default: public, or none for a table]
    #[arg(long, value_enum)]
    pub normalise: Option<NormaliseName>,
    /// µ of the noised mean and variance of --normalise private; counted in the guarantee [default: 0.1]
    #[arg(long, value_name = "µ", allow_hyphen_values = true)]
    pub normalise_mu: Option<f64>,
    /// Learn from features of the images in the place of their pixels; costs no privacy
    #[arg(long, value_enum)]
    pub features: Option<FeaturesName>,
    /// lenet5, paper-cnn, mlp, logistic or a TOML file [default: lenet5; mlp for tables, logistic for features]
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub net: Option<String>,

    /// m, groups a round; with poisson sampling the divisor of the noised sum [default: 2048]
    #[arg(long, value_name = "m", allow_hyphen_values = true, help_heading = "The mechanism")]
    pub groups: Option<u64>,
    /// s, samples a group: 1 is individual clipping [default: 1]
    #[arg(long, value_name = "s", allow_hyphen_values = true, help_heading = "The mechanism")]
    pub group_size: Option<u64>,
    /// E, epochs of ⌊N/(ms)⌋ rounds [default: 30]
    #[arg(long, value_name = "E", allow_hyphen_values = true, help_heading = "The mechanism")]
    pub epochs: Option<u64>,
    /// T, rounds, instead of --epochs
    #[arg(long, value_name = "T", allow_hyphen_values = true, help_heading = "The mechanism")]
    pub rounds: Option<u64>,
    /// σ, noise N(0, (2Cσ)²) on every coordinate, instead of --target-epsilon
    #[arg(long, value_name = "σ", allow_hyphen_values = true, help_heading = "The mechanism")]
    pub sigma: Option<f64>,
    /// z = 2σ, noise N(0, (Cz)²), instead of --sigma
    #[arg(long, value_name = "z", allow_hyphen_values = true, help_heading = "The mechanism")]
    pub noise_multiplier: Option<f64>,
    /// How the noise is drawn [default: exact]
    #[arg(long, value_enum, help_heading = "The mechanism")]
    pub noise: Option<NoiseName>,
    /// How a round draws its samples [default: subsample]
    #[arg(long, value_enum, help_heading = "The mechanism")]
    pub sampling: Option<SamplingName>,
    /// p, the rate of Poisson sampling, a public constant [default: groups/N for a public data set]
    #[arg(long, value_name = "p", allow_hyphen_values = true, help_heading = "The mechanism")]
    pub rate: Option<f64>,
    /// Keep every group with probability ½ only (probabilistic filtering)
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "The mechanism"
    )]
    pub filter: Option<bool>,
    /// Which data sets are neighbours [default: substitute; add-remove for poisson]
    #[arg(long, value_enum, help_heading = "The mechanism")]
    pub neighbours: Option<NeighboursName>,
    /// g, the number of samples in which neighbours differ [default: 1]
    #[arg(long, value_name = "g", allow_hyphen_values = true, help_heading = "The mechanism")]
    pub differing: Option<u64>,
    /// µ of a further Gaussian release, composed in; can be repeated
    #[arg(
        long,
        value_name = "µ",
        allow_hyphen_values = true,
        value_delimiter = ',',
        help_heading = "The mechanism"
    )]
    pub release_mu: Vec<f64>,

    /// Choose the smallest σ with this ε at --delta before the start [default: 3]
    #[arg(long, value_name = "ε", allow_hyphen_values = true, help_heading = "The budget")]
    pub target_epsilon: Option<f64>,
    /// Stop before the round that would exceed this ε at --delta
    #[arg(long, value_name = "ε", allow_hyphen_values = true, help_heading = "The budget")]
    pub max_epsilon: Option<f64>,
    /// δ at which ε is stated [default: 1e-5]
    #[arg(long, value_name = "δ", allow_hyphen_values = true, help_heading = "The budget")]
    pub delta: Option<f64>,
    /// Against whom the budget holds [default: A0; A1 for shuffle, where nothing better is proved]
    #[arg(long, value_enum, ignore_case = true, help_heading = "The budget")]
    pub adversary: Option<AdversaryName>,

    /// C, the norm to which a group's result is clipped.
    #[arg(
        long,
        value_name = "C",
        allow_hyphen_values = true,
        help_heading = "The algorithm",
        help = format!("C, the norm to which a group's result is clipped [default: {}]", defaults::CLIP)
    )]
    pub clip: Option<f64>,
    /// How C changes: constant, inverse-root, step:FACTOR:EPOCHS, when-worse[:FACTOR, 0.9],
    /// follow-update:SHARE (of C that the noised updates show to be in use) [default: constant]
    #[arg(long, value_name = "RULE", help_heading = "The algorithm")]
    pub clip_rule: Option<String>,
    /// η, the step of w ← w − η·Ū/m.
    #[arg(
        long,
        value_name = "η",
        allow_hyphen_values = true,
        help_heading = "The algorithm",
        help = format!("η, the step of w ← w − η·Ū/m [default: {}]", defaults::STEP)
    )]
    pub step: Option<f64>,
    /// How η changes: constant, inverse-root, step:FACTOR:EPOCHS, when-worse[:FACTOR, 0.9] (the test accuracy
    /// fell) [default: constant; step:0.5:20 with the default η]
    #[arg(long, value_name = "RULE", help_heading = "The algorithm")]
    pub step_rule: Option<String>,
    /// A, the algorithm inside a group; a list is gone through round by round in every epoch
    /// [default: gradient]
    #[arg(long, value_name = "A,…", value_enum, value_delimiter = ',', help_heading = "The algorithm")]
    pub inner: Vec<InnerName>,
    /// η inside a group [default: 0.05]
    #[arg(long, value_name = "η", allow_hyphen_values = true, help_heading = "The algorithm")]
    pub inner_step: Option<f64>,
    /// What a group hands over [default: sum]
    #[arg(long, value_enum, help_heading = "The algorithm")]
    pub inner_result: Option<InnerResultName>,
    /// The optimizer of the noised updates [default: momentum]
    #[arg(long, value_enum, help_heading = "The algorithm")]
    pub outer: Option<OuterName>,
    /// The coefficient of outer momentum [default: 0.9]
    #[arg(long, value_name = "β", allow_hyphen_values = true, help_heading = "The algorithm")]
    pub momentum: Option<f64>,

    /// Draw everything from this number: reproducible, and NOT private
    #[arg(long, value_name = "NUMBER", help_heading = "The machine")]
    pub seed: Option<u64>,
    /// Threads; the result does not depend on it [default: all cores]
    #[arg(long, value_name = "n", allow_hyphen_values = true, help_heading = "The machine")]
    pub threads: Option<usize>,
    /// Also write the training loss and the share of clipped groups, which are NOT private, to
    /// diagnostics.jsonl
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "The machine"
    )]
    pub diagnostics: Option<bool>,

    /// The layers of a network of one's own, instead of a file with them.
    #[arg(skip)]
    pub network: Option<NetworkSpec>,
    /// What the columns of a CSV file mean.
    #[arg(skip)]
    pub schema: Option<Schema>,
}

/// `--normalise`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum NormaliseName {
    /// By published constants; nothing is learned from the private data
    Public,
    /// By the noised mean and variance of the private data, counted in the guarantee
    Private,
    /// Not at all
    None,
}

/// `--features`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum FeaturesName {
    /// Fixed wavelets of the image, 81 channels for one at a quarter of the size
    Scattering,
}

/// `--noise`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseName {
    /// The rounded Gaussian without error: the guarantee holds for the numbers that leave
    Exact,
    /// Single precision, a little faster: the guarantee is that of the real Gaussian it approximates
    Fast,
}

impl From<NoiseName> for NoiseKind {
    fn from(name: NoiseName) -> Self {
        match name {
            NoiseName::Exact => NoiseKind::Exact,
            NoiseName::Fast => NoiseKind::Fast,
        }
    }
}

/// `--inner`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum InnerName {
    /// The mean gradient of the group
    Gradient,
    /// Classical SGD, one sample after the other
    Sgd,
    /// SGD with momentum
    Momentum,
    /// Adam
    Adam,
    /// AdaGrad
    Adagrad,
    /// RMSProp
    Rmsprop,
}

/// `--inner-result`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum InnerResultName {
    /// The sum of the gradients used
    Sum,
    /// The model difference (w − w_end)/η
    Difference,
}

/// `--outer`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum OuterName {
    /// w ← w − η·Ū/m
    Plain,
    /// With momentum
    Momentum,
    /// Adam
    Adam,
}

impl TrainSettings {
    /// How the noise is drawn.
    pub fn noise_kind(&self) -> NoiseKind {
        self.noise.unwrap_or(NoiseName::Exact).into()
    }

    /// These flags over an optional file.
    pub fn layered(&self, path: Option<&PathBuf>) -> Result<Self, Failure> {
        self.check_alternatives("on the command line")?;
        let Some(path) = path else { return Ok(self.clone()) };
        let file: Self = read(path)?;
        file.check_alternatives("in the file")?;
        Ok(self.over(file))
    }

    /// Paths that mean the same from every directory.
    pub fn anchored(mut self) -> Self {
        // A path that has no absolute form is left as it is, and is refused where it is opened.
        let anchor = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        self.data_dir = self.data_dir.map(|path| anchor(&path));
        self.test = self.test.map(|path| anchor(&path));
        if let Some(name) = self.data.as_mut().filter(|name| Path::new(name).is_file()) {
            *name = anchor(Path::new(name)).to_string_lossy().into_owned();
        }
        self
    }

    /// The command that runs these settings: flags, where they can say everything.
    pub fn command(&self) -> Result<String, Failure> {
        if self.schema.is_some() || !self.net.as_deref().is_none_or(|net| net::NAMES.contains(&net)) {
            return Ok("dpsgd train --config config.toml".to_string());
        }
        let table = toml::Table::try_from(self).map_err(|error| Failure::Machine(error.to_string()))?;
        let mut text = "dpsgd train".to_string();
        for (name, value) in &table {
            let plain = |value: &toml::Value| match value {
                toml::Value::String(text) => quoted(text),
                other => other.to_string(),
            };
            match value {
                // The network that is named.
                toml::Value::Table(_) => {}
                toml::Value::Boolean(value) => text.push_str(&format!(" --{name}={value}")),
                toml::Value::Array(values) if values.is_empty() => {}
                toml::Value::Array(values) => {
                    let values: Vec<String> = values.iter().map(plain).collect();
                    text.push_str(&format!(" --{name} {}", values.join(",")));
                }
                toml::Value::Float(value) => text.push_str(&format!(" --{name} {}", number(*value))),
                value => text.push_str(&format!(" --{name} {}", plain(value))),
            }
        }
        Ok(text)
    }

    fn check_alternatives(&self, place: &str) -> Result<(), Failure> {
        let given = |pairs: &[(&str, bool)]| {
            let names: Vec<String> =
                pairs.iter().filter(|pair| pair.1).map(|pair| pair.0.to_string()).collect();
            if names.len() > 1 {
                let names = names.join(" and ");
                return Err(Failure::Input(format!("{names} are both given {place}: give one of them")));
            }
            Ok(())
        };
        given(&[("epochs", self.epochs.is_some()), ("rounds", self.rounds.is_some())])?;
        given(&[
            ("sigma", self.sigma.is_some()),
            ("noise-multiplier", self.noise_multiplier.is_some()),
            ("target-epsilon", self.target_epsilon.is_some()),
        ])
    }

    /// These settings where they are given and `below` elsewhere, alternatives as one.
    fn over(&self, below: Self) -> Self {
        let above = self.clone();
        let length = above.epochs.is_some() || above.rounds.is_some();
        let noisy =
            above.sigma.is_some() || above.noise_multiplier.is_some() || above.target_epsilon.is_some();
        let list = |above: Vec<f64>, below: Vec<f64>| if above.is_empty() { below } else { above };
        Self {
            data: above.data.or(below.data),
            data_dir: above.data_dir.or(below.data_dir),
            test: above.test.or(below.test),
            normalise: above.normalise.or(below.normalise),
            normalise_mu: above.normalise_mu.or(below.normalise_mu),
            features: above.features.or(below.features),
            net: above.net.or(below.net),
            groups: above.groups.or(below.groups),
            group_size: above.group_size.or(below.group_size),
            epochs: if length { above.epochs } else { below.epochs },
            rounds: if length { above.rounds } else { below.rounds },
            sigma: if noisy { above.sigma } else { below.sigma },
            noise_multiplier: if noisy { above.noise_multiplier } else { below.noise_multiplier },
            target_epsilon: if noisy { above.target_epsilon } else { below.target_epsilon },
            noise: above.noise.or(below.noise),
            sampling: above.sampling.or(below.sampling),
            rate: above.rate.or(below.rate),
            filter: above.filter.or(below.filter),
            neighbours: above.neighbours.or(below.neighbours),
            differing: above.differing.or(below.differing),
            release_mu: list(above.release_mu, below.release_mu),
            max_epsilon: above.max_epsilon.or(below.max_epsilon),
            delta: above.delta.or(below.delta),
            adversary: above.adversary.or(below.adversary),
            clip: above.clip.or(below.clip),
            clip_rule: above.clip_rule.or(below.clip_rule),
            step: above.step.or(below.step),
            step_rule: above.step_rule.or(below.step_rule),
            inner: if above.inner.is_empty() { below.inner } else { above.inner },
            inner_step: above.inner_step.or(below.inner_step),
            inner_result: above.inner_result.or(below.inner_result),
            outer: above.outer.or(below.outer),
            momentum: above.momentum.or(below.momentum),
            seed: above.seed.or(below.seed),
            threads: above.threads.or(below.threads),
            diagnostics: above.diagnostics.or(below.diagnostics),
            // A network that is named takes the place of one that is spelled out.
            network: if self.net.is_some() { None } else { below.network },
            schema: below.schema,
        }
    }
}

/// A word for a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_string()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}
