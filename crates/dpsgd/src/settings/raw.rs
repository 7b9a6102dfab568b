//! The settings of a run as somebody wrote them: from flags, from a TOML file, or in a program.
//!
//! Every setting has one name and one unit everywhere. A flag wins over a `[[phase]]` of the file, a phase
//! over the top level of the file, and that over the default ([`defaults`](super::defaults)). Of settings
//! that say the same thing in different ways (epochs and rounds; sigma, noise-multiplier and target-epsilon;
//! delta and epsilon) the one from the stronger place wins; two in one place are refused.

use std::path::{Path, PathBuf};

use dpsgd_data::Known;
use dpsgd_data::features::Features;
use dpsgd_data::schema::Schema;
use dpsgd_engine::spec::NetworkSpec;
use dpsgd_privacy::Adversary;
use dpsgd_privacy::mechanism::{Neighbours, SamplingKind};
use dpsgd_train::directory::{CONFIG, LEDGER};
use serde::{Deserialize, Serialize};

use super::names::{Choose, InnerName, NoiseName, Normalise, OuterName, ResultName};
use super::{SettingsError, file};
#[cfg(feature = "clap")]
use super::{defaults, flags};
use crate::shared_ledger::NONE;

/// The settings of a run and the question about it, each given or not. See the module documentation.
///
/// [`RawSettings::resolve`] turns them into [`Settings`](super::Settings), in which everything is decided.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "clap", command(next_help_heading = "The data and the network"))]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawSettings {
    /// mnist, fashion-mnist, cifar10, adult, or your own: a table (.csv, .parquet), arrays (.npy, .npz), or a
    /// folder with a subfolder of images for each class [default: mnist]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME|FILE|FOLDER"))]
    pub data: Option<String>,
    /// Where the data sets are [default: $DPSGD_DATA, then data here, in a directory above, or in the source
    /// checkout]
    #[cfg_attr(feature = "clap", arg(long, value_name = "DIR"))]
    pub data_dir: Option<PathBuf>,
    /// The public test set of your own data, in the same format [default: none, and nothing is measured]
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE|FOLDER"))]
    pub test: Option<PathBuf>,
    /// A private test set instead: measured once, at the end, with noise that is counted in the guarantee
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE|FOLDER"))]
    pub private_test: Option<PathBuf>,
    /// µ of what is measured on --private-test [default: 0.1, less for a small --target-epsilon]
    #[cfg_attr(feature = "clap", arg(long, value_name = "µ", allow_hyphen_values = true))]
    pub test_mu: Option<f64>,
    /// The classes of arrays or of a folder of images, public knowledge: their names in order, or their number
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME,…|K", value_delimiter = ','))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// The size to which the images of a folder are brought: 32x32, or 28x28x1 for grey
    #[cfg_attr(feature = "clap", arg(long, value_name = "HxW[xC]"))]
    pub image_size: Option<String>,
    /// The public range of the values of arrays, mapped to 0 to 1; bytes need none
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "LOW,HIGH", allow_hyphen_values = true, value_delimiter = ',')
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub value_range: Vec<f64>,
    /// The channels of arrays stand before height and width, as in PyTorch
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")
    )]
    pub channels_first: Option<bool>,
    /// The mean of each channel, between 0 and 1, a public constant for --normalise public
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "x,…", allow_hyphen_values = true, value_delimiter = ',')
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mean: Vec<f32>,
    /// The standard deviation of each channel, beside --mean
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "x,…", allow_hyphen_values = true, value_delimiter = ',')
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub std: Vec<f32>,
    /// Public constants that say how much the classes count, in their order: 1,10 makes the second count ten
    /// times as much [default: 1 for each]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "w,…", allow_hyphen_values = true, value_delimiter = ',')
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub class_weights: Vec<f32>,
    /// How samples are brought to mean 0 and variance 1 [default: public; private for a table with numbers]
    #[cfg_attr(feature = "clap", arg(long, value_enum))]
    pub normalise: Option<Normalise>,
    /// µ of the noised mean and variance of --normalise private; counted in the guarantee [default: 0.1, less
    /// for a small --target-epsilon]
    #[cfg_attr(feature = "clap", arg(long, value_name = "µ", allow_hyphen_values = true))]
    pub normalise_mu: Option<f64>,
    /// Learn from fixed features of the images instead of their pixels; costs no privacy
    #[cfg_attr(feature = "clap", arg(long, value_parser = flags::features()))]
    pub features: Option<Features>,
    /// Keep the features in this directory, so that they are computed once; they reveal what the images reveal
    /// [default: dpsgd in the user's directory for caches for the public data sets, else none]
    #[cfg_attr(feature = "clap", arg(long, value_name = "DIR|none"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features_cache: Option<PathBuf>,
    /// lenet5, paper-cnn, small-cnn, mlp, logistic, or a TOML file [default: lenet5; logistic for tables and
    /// features]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME|FILE.toml"))]
    pub net: Option<String>,

    /// N, the size of the data set [default: that of the data]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "The mechanism")
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// m, groups a round; with poisson and allocate the divisor of the noised sum [default: 2048; N/10 for a
    /// table]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "m", allow_hyphen_values = true, help_heading = "The mechanism")
    )]
    pub groups: Option<u64>,
    /// s, samples a group (with allocate, on average): 1 is individual clipping [default: 1]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "s", allow_hyphen_values = true, help_heading = "The mechanism")
    )]
    pub group_size: Option<u64>,
    /// E, epochs of ⌊N/(ms)⌋ rounds [default: 30; 20 for a table]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "E", allow_hyphen_values = true, help_heading = "The mechanism")
    )]
    pub epochs: Option<u64>,
    /// T, rounds, instead of --epochs
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "T", allow_hyphen_values = true, help_heading = "The mechanism")
    )]
    pub rounds: Option<u64>,
    /// σ, noise N(0, (2Cσ)²) on every coordinate [default: the smallest that meets --target-epsilon]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "σ", allow_hyphen_values = true, help_heading = "The mechanism")
    )]
    pub sigma: Option<f64>,
    /// z = 2σ, noise N(0, (Cz)²), instead of --sigma
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "z", allow_hyphen_values = true, help_heading = "The mechanism")
    )]
    pub noise_multiplier: Option<f64>,
    /// How the noise is drawn [default: exact]
    #[cfg_attr(feature = "clap", arg(long, value_enum, help_heading = "The mechanism"))]
    pub noise: Option<NoiseName>,
    /// How a round draws its samples [default: subsample]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_parser = flags::sampling(), help_heading = "The mechanism")
    )]
    pub sampling: Option<SamplingKind>,
    /// p, the rate of Poisson sampling, a public constant [default: groups/N where N is public]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "p", allow_hyphen_values = true, help_heading = "The mechanism")
    )]
    pub rate: Option<f64>,
    /// B, the rounds of an epoch with --sampling allocate, a public constant
    /// [default: N/(groups · group-size), rounded down, where N is public]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "B", allow_hyphen_values = true, help_heading = "The mechanism")
    )]
    pub rounds_per_epoch: Option<u64>,
    /// Keep every group with probability ½ only (probabilistic filtering)
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "BOOL",
            num_args = 0..=1,
            require_equals = true,
            default_missing_value = "true",
            help_heading = "The mechanism"
        )
    )]
    pub filter: Option<bool>,
    /// Which data sets are neighbours [default: substitute; add-remove for poisson and allocate]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_parser = flags::neighbours(), help_heading = "The mechanism")
    )]
    pub neighbours: Option<Neighbours>,
    /// g, the number of samples in which neighbours differ [default: 1]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "g", allow_hyphen_values = true, help_heading = "The mechanism")
    )]
    pub differing: Option<u64>,
    /// µ of another Gaussian release on the same data, for one differing sample; composed in, can be repeated
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "µ",
            allow_hyphen_values = true,
            value_delimiter = ',',
            help_heading = "The mechanism"
        )
    )]
    pub release_mu: Vec<f64>,

    /// Choose the smallest σ that reaches this ε at --delta, before the start [default: 3]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "ε", allow_hyphen_values = true, help_heading = "The budget")
    )]
    pub target_epsilon: Option<f64>,
    /// Stop before the round that would exceed this ε at --delta
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "ε", allow_hyphen_values = true, help_heading = "The budget")
    )]
    pub max_epsilon: Option<f64>,
    /// δ at which ε is stated [default: 1e-5]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "δ", allow_hyphen_values = true, help_heading = "The budget")
    )]
    pub delta: Option<f64>,
    /// Against whom the budget holds [default: A0; A1 for shuffle, where nothing better is proved]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_parser = flags::adversary(), ignore_case = true, help_heading = "The budget")
    )]
    pub adversary: Option<Adversary>,
    /// ε at which δ is asked for, instead of --delta (account and curve)
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "ε", allow_hyphen_values = true, help_heading = "The budget")
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// False-alarm rates at which the best attack is reported [default: 0.01,0.05,0.5]
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "α,…",
            allow_hyphen_values = true,
            value_delimiter = ',',
            help_heading = "The budget"
        )
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alpha: Vec<f64>,

    /// C, the norm to which a group's result is clipped.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "C",
            allow_hyphen_values = true,
            help_heading = "The algorithm",
            help = format!(
                "C, the norm to which a group's result is clipped [default: {}; {} for a table]",
                defaults::CLIP,
                defaults::TABLE_CLIP
            )
        )
    )]
    pub clip: Option<f64>,
    /// How C changes: constant, inverse-root, step:FACTOR:EPOCHS, when-worse[:FACTOR, 0.9],
    /// follow-update:SHARE (of C that the noised updates show to be in use) [default: constant]
    #[cfg_attr(feature = "clap", arg(long, value_name = "RULE", help_heading = "The algorithm"))]
    pub clip_rule: Option<String>,
    /// η, the step of w ← w − η·Ū/m.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "η",
            allow_hyphen_values = true,
            help_heading = "The algorithm",
            help = format!(
                "η, the step of w ← w − η·Ū/m [default: {}; {} for a table]",
                defaults::STEP,
                defaults::TABLE_STEP
            )
        )
    )]
    pub step: Option<f64>,
    /// How η changes: constant, inverse-root, step:FACTOR:EPOCHS, when-worse[:FACTOR, 0.9] (when the test
    /// accuracy fell), linear or linear:END, cosine or cosine:END (falls to END·η over the run), each after an
    /// optional warmup:SHARE+ of the rounds [default: constant; with the default η, step:0.5:20, and four times
    /// in all for a table]
    #[cfg_attr(feature = "clap", arg(long, value_name = "RULE", help_heading = "The algorithm"))]
    pub step_rule: Option<String>,
    /// A, the algorithm inside a group; a list is used in turn, round by round, in every epoch
    /// [default: gradient]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "A,…", value_enum, value_delimiter = ',', help_heading = "The algorithm")
    )]
    pub inner: Vec<InnerName>,
    /// η inside a group [default: 0.05]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "η", allow_hyphen_values = true, help_heading = "The algorithm")
    )]
    pub inner_step: Option<f64>,
    /// What a group hands over [default: sum]
    #[cfg_attr(feature = "clap", arg(long, value_enum, help_heading = "The algorithm"))]
    pub inner_result: Option<ResultName>,
    /// The optimizer that receives the noised updates [default: momentum]
    #[cfg_attr(feature = "clap", arg(long, value_enum, help_heading = "The algorithm"))]
    pub outer: Option<OuterName>,
    /// The coefficient of outer momentum [default: 0.9]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "β", allow_hyphen_values = true, help_heading = "The algorithm")
    )]
    pub momentum: Option<f64>,
    /// α of label smoothing: the target of the class is 1 − α + α/K, that of each other class α/K [default:
    /// 0]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "α", allow_hyphen_values = true, help_heading = "The algorithm")
    )]
    pub label_smoothing: Option<f64>,
    /// Take the mean gradient over random views of each image, before the clip, so that it costs no privacy:
    /// flip (left and right), shift:PIXELS (edges reflected), or both [default: none]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "VIEW,…", value_delimiter = ',', help_heading = "The algorithm")
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub augment: Vec<String>,
    /// K, the views of a sample with --augment; a round takes K times as long [default: 4]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "K", allow_hyphen_values = true, help_heading = "The algorithm")
    )]
    pub views: Option<u64>,
    /// λ of w ← (1 − ηλ)·w before each step; it acts on the released w and costs no privacy [default: 0]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "λ", allow_hyphen_values = true, help_heading = "The algorithm")
    )]
    pub weight_decay: Option<f64>,
    /// Keep an average of w beside it, which costs no privacy: none, ema:DECAY, tail:SHARE (of the rounds)
    /// [default: none]
    #[cfg_attr(feature = "clap", arg(long, value_name = "AVERAGE", help_heading = "The algorithm"))]
    pub average: Option<String>,
    /// Which of the two becomes the model, where there is an --average [default: average]
    #[cfg_attr(feature = "clap", arg(long, value_enum, help_heading = "The algorithm"))]
    pub choose: Option<Choose>,

    /// Draw everything from this number: reproducible, and NOT private
    #[cfg_attr(feature = "clap", arg(long, value_name = "NUMBER", help_heading = "The machine"))]
    pub seed: Option<u64>,
    /// Threads; the result does not depend on it [default: all cores]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "n", allow_hyphen_values = true, help_heading = "The machine")
    )]
    pub threads: Option<usize>,
    /// The shared ledger: a directory outside of the run that remembers what every run has spent, or none
    /// [default: $DPSGD_LEDGER, then dpsgd in the user's directory for state]
    #[cfg_attr(feature = "clap", arg(long, value_name = "DIR|none", help_heading = "The machine"))]
    pub ledger: Option<PathBuf>,
    /// The name under which the shared ledger adds up the runs on the same data [default: the path of the data]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME", help_heading = "The machine"))]
    pub data_set: Option<String>,
    /// Also write the training loss and the share of clipped groups to diagnostics.jsonl; they are NOT
    /// private
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "BOOL",
            num_args = 0..=1,
            require_equals = true,
            default_missing_value = "true",
            help_heading = "The machine"
        )
    )]
    pub diagnostics: Option<bool>,

    /// The layers of a network, spelled out instead of named.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub network: Option<NetworkSpec>,
    /// What the columns of a table mean.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub schema: Option<Schema>,
    /// Stretches of rounds with their own sampler, sizes, length or noise.
    #[cfg_attr(feature = "clap", arg(skip))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phase: Vec<RawSettings>,
    /// Other Gaussian releases, each as a table of its own.
    #[cfg_attr(feature = "clap", arg(skip))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub release: Vec<RawRelease>,
}

/// Another Gaussian release on the same data.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RawRelease {
    /// µ.
    pub mu: f64,
}

/// What may change from phase to phase.
const OF_A_PHASE: [&str; 11] = [
    "samples",
    "groups",
    "group-size",
    "epochs",
    "rounds",
    "sigma",
    "noise-multiplier",
    "sampling",
    "rate",
    "rounds-per-epoch",
    "filter",
];

/// The first value that is given, field by field.
macro_rules! layered {
    ($above:expr, $below:expr; $($option:ident)*; $($list:ident)*; $($rest:ident: $value:expr),*) => {
        RawSettings {
            $($option: $above.$option.clone().or_else(|| $below.$option.clone()),)*
            $($list: if $above.$list.is_empty() { $below.$list.clone() } else { $above.$list.clone() },)*
            $($rest: $value,)*
        }
    };
}

impl RawSettings {
    /// Reads settings from a TOML file.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let settings: Self = file::read(path)?;
        settings.check_alternatives("at the top level of the file")?;
        for phase in &settings.phase {
            phase.check_alternatives("in a [[phase]]")?;
            phase.check_phase()?;
        }
        Ok(settings)
    }

    /// These settings, which came from flags, over an optional file.
    pub fn with_file(&self, path: Option<&Path>) -> Result<Self, SettingsError> {
        self.check_alternatives("on the command line")?;
        match path {
            Some(path) => Ok(self.over(&Self::of_run(path)?.map_or_else(|| Self::read(path), Ok)?)),
            None => Ok(self.clone()),
        }
    }

    /// The settings of the run in whose directory `path` is `config.toml`: decided, with the budget of the
    /// run applied, so that another question is about the run that was trained.
    fn of_run(path: &Path) -> Result<Option<Self>, SettingsError> {
        let Some(directory) = path.parent().filter(|_| path.file_name().is_some_and(|name| name == CONFIG))
        else {
            return Ok(None);
        };
        if !directory.join(LEDGER).is_file() {
            return Ok(None);
        }
        let settings = crate::SavedRun::open(directory).and_then(|run| run.settings());
        settings
            .map(|settings| Some(settings.to_raw()))
            .map_err(|error| SettingsError::Refused(error.to_string()))
    }

    /// These settings where they are given and `below` elsewhere; alternatives count as one setting. A
    /// setting here also wins over every phase of `below`.
    pub fn over(&self, below: &Self) -> Self {
        let mut settings = self.over_level(below);
        settings.phase = below.phase.clone();
        for phase in &mut settings.phase {
            if self.target_epsilon.is_some() {
                (phase.sigma, phase.noise_multiplier) = (None, None);
            }
            *phase = self.of_phase().over_level(phase);
        }
        settings
    }

    /// One level over another, phases left out.
    pub(super) fn over_level(&self, below: &Self) -> Self {
        let mut below = below.clone();
        if self.epochs.is_some() || self.rounds.is_some() {
            (below.epochs, below.rounds) = (None, None);
        }
        if self.sigma.is_some() || self.noise_multiplier.is_some() || self.target_epsilon.is_some() {
            (below.sigma, below.noise_multiplier, below.target_epsilon) = (None, None, None);
        }
        // Another question; δ also belongs to the target and to the budget, so it stays.
        if self.delta.is_some() || self.epsilon.is_some() {
            below.epsilon = None;
        }
        if !self.release_mu.is_empty() {
            below.release.clear();
        }
        // A network that is named replaces one that is spelled out.
        if self.net.is_some() {
            below.network = None;
        }
        layered!(
            self, below;
            data data_dir test private_test test_mu normalise normalise_mu features features_cache net samples
            groups group_size epochs rounds sigma noise_multiplier noise sampling rate rounds_per_epoch filter neighbours differing target_epsilon
            max_epsilon delta adversary epsilon clip clip_rule step step_rule inner_step
            inner_result outer momentum label_smoothing views weight_decay average choose seed threads
            ledger data_set diagnostics network schema image_size channels_first;
            release_mu alpha inner release class_weights augment classes value_range mean std;
            phase: Vec::new()
        )
    }

    /// What of these settings may belong to a phase.
    pub(super) fn of_phase(&self) -> Self {
        Self {
            samples: self.samples,
            groups: self.groups,
            group_size: self.group_size,
            epochs: self.epochs,
            rounds: self.rounds,
            sigma: self.sigma,
            noise_multiplier: self.noise_multiplier,
            sampling: self.sampling,
            rate: self.rate,
            rounds_per_epoch: self.rounds_per_epoch,
            filter: self.filter,
            ..Self::default()
        }
    }

    /// Paths that mean the same from every directory.
    pub fn anchored(mut self) -> Self {
        // A path that has no absolute form is left as it is, and is refused where it is opened.
        let anchor = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        self.data_dir = self.data_dir.map(|path| anchor(&path));
        self.test = self.test.map(|path| anchor(&path));
        let unless_none = |path: PathBuf| if path == Path::new(NONE) { path } else { anchor(&path) };
        self.ledger = self.ledger.map(unless_none);
        self.features_cache = self.features_cache.map(unless_none);
        self.private_test = self.private_test.map(|path| anchor(&path));
        if let Some(name) =
            self.data.as_mut().filter(|name| name.parse::<Known>().is_err() && Path::new(name).exists())
        {
            *name = anchor(Path::new(name)).to_string_lossy().into_owned();
        }
        self
    }

    /// µ of every release that is given.
    pub(super) fn releases(&self) -> impl Iterator<Item = f64> {
        self.release_mu.iter().copied().chain(self.release.iter().map(|release| release.mu))
    }

    pub(super) fn check_alternatives(&self, place: &'static str) -> Result<(), SettingsError> {
        let groups: [&[(&'static str, bool)]; 4] = [
            &[("epochs", self.epochs.is_some()), ("rounds", self.rounds.is_some())],
            &[
                ("sigma", self.sigma.is_some()),
                ("noise-multiplier", self.noise_multiplier.is_some()),
                ("target-epsilon", self.target_epsilon.is_some()),
            ],
            &[("delta", self.delta.is_some()), ("epsilon", self.epsilon.is_some())],
            &[("release", !self.release.is_empty()), ("release-mu", !self.release_mu.is_empty())],
        ];
        for group in groups {
            let given: Vec<&str> =
                group.iter().filter(|setting| setting.1).map(|setting| setting.0).collect();
            if given.len() > 1 {
                return Err(SettingsError::Both { names: given.join(" and "), place });
            }
        }
        Ok(())
    }

    /// What belongs to the whole run cannot change during it.
    fn check_phase(&self) -> Result<(), SettingsError> {
        if *self == self.of_phase() {
            return Ok(());
        }
        let table = toml::Table::try_from(self).map_err(|error| SettingsError::Toml(error.to_string()))?;
        let is_given = |value: &toml::Value| !value.as_array().is_some_and(Vec::is_empty);
        let name = table.iter().find(|(name, value)| !OF_A_PHASE.contains(&name.as_str()) && is_given(value));
        Err(SettingsError::OfTheRun(name.map(|(name, _)| name.clone()).unwrap_or_default()))
    }
}
