//! The rows of the two tables as they are printed, and the runs for which each is evaluated.

mod first;
mod second;

use dpsgd_privacy::mechanism::{
    Length, Mechanism, MechanismError, NoiseScale, PhaseConfig, RunConfig, Sampling, SamplingKind,
};
use dpsgd_privacy::printed::Printed;
use dpsgd_report::text::number;

pub use self::first::table1;
pub use self::second::table2;

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// Shuffled batches instead of subsampled ones.
    pub shuffled: bool,
    /// N.
    pub samples: u64,
    /// m.
    pub groups: u64,
    /// s.
    pub group_size: u64,
    /// g.
    pub differing: u64,
    /// E, in epochs of ⌊N/(ms)⌋ rounds.
    pub epochs: u64,
    /// σ.
    pub sigma: f64,
    /// Every group is kept with probability ½ only.
    pub filtered: bool,
}

/// A run with subsampled batches: (N, m, s), g, E, σ.
pub const fn subsampled(sizes: (u64, u64, u64), differing: u64, epochs: u64, sigma: f64) -> Case {
    let (samples, groups, group_size) = sizes;
    Case { shuffled: false, samples, groups, group_size, differing, epochs, sigma, filtered: false }
}

/// A run with shuffled batches: (N, m, s), g, E, σ.
pub const fn shuffled(sizes: (u64, u64, u64), differing: u64, epochs: u64, sigma: f64) -> Case {
    Case { shuffled: true, ..subsampled(sizes, differing, epochs, sigma) }
}

impl Case {
    /// The same run with every group kept with probability ½.
    pub const fn filtered(self) -> Self {
        Self { filtered: true, ..self }
    }

    /// The name of its sampler.
    pub fn sampling(&self) -> &'static str {
        if self.shuffled { SamplingKind::Shuffle.name() } else { SamplingKind::Subsample.name() }
    }

    /// The checked run.
    pub fn mechanism(&self) -> Result<Mechanism, MechanismError> {
        let Self { samples, groups, group_size, .. } = *self;
        let sampling = if self.shuffled {
            Sampling::Shuffle { samples, groups, group_size }
        } else {
            Sampling::Subsample { samples, groups, group_size }
        };
        let phase = PhaseConfig {
            sampling,
            length: Length::Epochs(self.epochs),
            noise: NoiseScale::Sigma(self.sigma),
            filtered: self.filtered,
        };
        RunConfig { differing: self.differing, ..RunConfig::single(phase) }.check()
    }

    /// "N = 60000, m = 64, s = 1, g = 1, E = 100, σ = 2".
    pub fn name(&self) -> String {
        format!(
            "N = {}, m = {}, s = {}, g = {}, E = {}, σ = {}",
            self.samples,
            self.groups,
            self.group_size,
            self.differing,
            self.epochs,
            number(self.sigma)
        )
    }
}

/// A row of a printed table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its number in the table, or where else it is printed.
    pub label: &'static str,
    /// Clipping, sampling and g.
    pub conditions: &'static str,
    /// The formula as the table has it.
    pub formula: &'static str,
    /// What its runs show.
    pub remark: &'static str,
    /// How the sources of its closed forms begin.
    pub sources: &'static [&'static str],
    /// The runs.
    pub cases: Vec<Case>,
}

impl Row {
    /// Whether a closed form belongs to the row.
    pub fn holds(&self, printed: &Printed) -> bool {
        self.sources.iter().any(|source| printed.source.starts_with(source))
    }
}

/// The small version: the first three runs of a row with g ≤ 4.
fn fewer(mut rows: Vec<Row>) -> Vec<Row> {
    for row in &mut rows {
        row.cases.retain(|case| case.differing <= 4);
        row.cases.truncate(3);
    }
    rows
}
